"""Find the parts of a joined or cut-off audio file, of which libsndfile reads one.

Layouts: RFC 3533 (Ogg), RFC 9639 (FLAC), Multimedia Programming Interface and Data Specifications 1.0 (WAV), Audio
Interchange File Format 1.3, ISO/IEC 11172-3 and 13818-3 (frames of MP3).
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from asrtool.errors import AsrtoolError
from asrtool.files import write_beside

STREAMED = 0x7FFF0000  # bytes: sizes from here on mean unknown; sox and ffmpeg write them to pipes
KBITS = {
    True: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}  # bit rates of layer III: MPEG 1, or a later MPEG
EMPTY = "no readable audio: it is empty"  # fault of a file without a byte
SMALL = {"PCM_16", "PCM_S8", "PCM_U8", "ULAW", "ALAW"}  # codings whose samples fit into 16 bits
Bytes: TypeAlias = mmap.mmap | bytes


@dataclasses.dataclass
class Part:
    """Bytes of a file that are an audio file of their own."""

    begin: int
    end: int
    fault: str = ""  # the missing part; empty if it is whole


def parts_of(path: Path) -> list[Part]:
    """Return the parts of an audio file in order, as `parts_in`."""
    if not path.stat().st_size:
        return parts_in(b"")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return parts_in(data)


def parts_in(data: Bytes) -> list[Part]:
    """Return the parts of an audio file in order; one part for other formats."""
    begin = _after_tag(data, 0)
    start = data[begin : begin + 4]
    if start in (b"RIFF", b"FORM"):
        parts = _chunked(data, "<" if start == b"RIFF" else ">")
    elif start == b".snd":
        parts = list(_sun(data))
    elif start == b"OggS":
        parts = list(_ogg(data))
    elif start == b"fLaC":
        parts = _flac(data)
    else:
        parts = list(_mp3(data)) if begin or _frame(data, 0) else []
    return parts or [Part(0, len(data), "" if data else EMPTY)]


def describe_faults(parts: list[Part]) -> str:
    """Return the reason for which a reader of one part misses audio, or ''."""
    fault = next((part.fault if part.fault == EMPTY else f"cut off: {part.fault}" for part in parts if part.fault), "")
    return fault or (f"{len(parts)} audio files joined in one, of which the first alone is read" if parts[1:] else "")


def open_parts(source: Path | bytes, parts: list[Part]) -> Iterator[Any]:
    """Yield each part as an open file of soundfile, closed after it."""
    import soundfile

    for part in parts:
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
            file.seek(part.begin)
            data = file.read(part.end - part.begin)
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            yield sound


def read_format(source: Path | bytes, parts: list[Part]) -> tuple[int, int, int]:
    """Return samples of a channel, rate and channels; AsrtoolError if parts differ."""
    import soundfile

    where = f"{source}: " if isinstance(source, Path) else ""
    if parts[0].fault == EMPTY:
        raise AsrtoolError(f"{where}{EMPTY}", "replace the file")
    try:
        kinds = [(sound.samplerate, sound.channels, sound.frames) for sound in open_parts(source, parts)]
    except soundfile.LibsndfileError as error:
        what = f"{where}{'a part of it is ' if parts[1:] else ''}no readable audio: {error.error_string}"
        raise AsrtoolError(what, "replace the file") from error
    filled = [kind for kind in kinds if kind[2]] or kinds[:1]
    differing = dict.fromkeys((rate_hz, channels) for rate_hz, channels, _ in filled)
    if len(differing) > 1:
        found = ", ".join(f"{rate_hz} Hz with {channels} channels" for rate_hz, channels in differing)
        raise AsrtoolError(f"{where}its {len(parts)} joined parts differ: {found}", "cut it into its parts")
    return sum(kind[2] for kind in kinds), filled[0][0], filled[0][1]


def read_parts(source: Path | bytes) -> tuple[Any, int]:
    """Return the samples of all parts (num_samples, num_channels), and the rate.

    They are int16 if that loses nothing, else float32, which may be beyond full scale. Raises AsrtoolError for a file
    that is cut off or cannot be read.
    """
    import numpy as np

    parts = parts_of(source) if isinstance(source, Path) else parts_in(source)
    if any(part.fault for part in parts):
        raise AsrtoolError(describe_faults(parts), "replace the file")
    _, rate_hz, num_channels = read_format(source, parts)
    is_small = all(sound.subtype in SMALL for sound in open_parts(source, parts))
    # Not int16 of float: libsndfile does not scale it, and full scale would be 1.
    dtype = "int16" if is_small else "float32"
    found = [sound.read(dtype=dtype, always_2d=True) for sound in open_parts(source, parts)]
    return np.concatenate([samples_SC for samples_SC in found if samples_SC.shape[1] == num_channels]), rate_hz


def encode(samples_SC: Any, rate_hz: int) -> bytes:
    """Return the bytes of a lossless audio file: FLAC of int16, WAV of float32."""
    import soundfile

    kind = ("FLAC", "PCM_16") if samples_SC.dtype == "int16" else ("RF64", "FLOAT")  # WAV of any size
    file = io.BytesIO()
    soundfile.write(file, samples_SC, rate_hz, format=kind[0], subtype=kind[1])
    return file.getvalue()


def write_lossless(samples_SC: Any, rate_hz: int, stem: Path) -> None:
    """Write encoded samples to `stem` with the suffix of the format."""
    # Through memory, because libsndfile reports a full disk as success.
    content = encode(samples_SC, rate_hz)
    with write_beside(_lossless_paths(stem)[samples_SC.dtype != "int16"]) as temporary:
        temporary.write_bytes(content)


def find_lossless(stem: Path) -> Path | None:
    """Return the file that `write_lossless` wrote to `stem`, None if it did not."""
    return next((path for path in _lossless_paths(stem) if path.is_file()), None)


def _lossless_paths(stem: Path) -> tuple[Path, Path]:
    return stem.with_name(f"{stem.name}.flac"), stem.with_name(f"{stem.name}.wav")


def _chunked(data: Bytes, order: str) -> list[Part]:
    """Return the parts of WAV and AIFF."""
    parts: list[Part] = []
    place, kinds = 0, (b"WAVE", b"AIFF", b"AIFC")
    while data[place : place + 4] in (b"RIFF", b"FORM") and data[place + 8 : place + 12] in kinds:
        begin, place, fault, is_found = place, place + 12, "", False
        while place + 8 <= len(data) and data[place : place + 4] not in (b"RIFF", b"FORM"):
            name, size = struct.unpack(f"{order}4sI", data[place : place + 8])
            place += 8
            if name in (b"data", b"SSND") and not is_found:
                is_found = True
                fault = "" if size >= STREAMED else _missing(size, len(data) - place)
            place += size + (size % 2 if data[place + size : place + size + 4] not in (b"RIFF", b"FORM") else 0)
        parts.append(Part(begin, min(place, len(data)), fault))
    return parts


def _sun(data: Bytes) -> Iterator[Part]:
    place = 0
    while data[place : place + 4] == b".snd" and place + 12 <= len(data):
        heading, size = struct.unpack(">II", data[place + 4 : place + 12])
        if heading < 24:
            return
        fault = "" if size >= STREAMED else _missing(size, len(data) - place - heading)
        end = len(data) if size >= STREAMED else min(place + heading + size, len(data))
        yield Part(place, end, fault)
        place = end


def _missing(declared: int, there: int) -> str:
    return f"{max(there, 0)} of {declared} bytes of audio are there" if there < declared else ""


def _flac(data: Bytes) -> list[Part]:
    """Return the parts that begin with STREAMINFO; whole if all samples decode."""
    import soundfile

    begins: list[int] = []
    place = -1
    while (place := data.find(b"fLaC\x00\x00\x00\x22", place + 1)) >= 0:
        begins.append(place)
    parts = [Part(begin, end) for begin, end in itertools.pairwise([*begins, len(data)])]
    for part in parts:
        declared = int.from_bytes(data[part.begin + 21 : part.begin + 26], "big") & (2**36 - 1)
        if declared and not _has_sample(data[part.begin : part.end], declared - 1, soundfile):
            part.fault = f"the last of {declared} declared samples is not there"
    return parts


def _has_sample(data: bytes, number: int, soundfile: Any) -> bool:
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            sound.seek(number)
            return len(sound.read(1)) == 1
    except soundfile.SoundFileError:
        return False


def _ogg(data: Bytes) -> Iterator[Part]:
    """Yield the parts that begin with begin pages, whole if they have a last page."""
    part: Part | None = None
    place, heading, flags = 0, False, 0
    while (place := data.find(b"OggS", place)) >= 0:
        head = data[place : place + 27]
        size = 27 + head[26] + sum(data[place + 27 : place + 27 + head[26]]) if len(head) == 27 else len(data) + 1
        if place + size > len(data):
            flags = 0
            break
        if head[5] & 2 and not heading:
            if part:
                yield part
            part = Part(place, place)
        heading, flags = bool(head[5] & 2), head[5]
        if part:
            part.end = place + size  # whole pages: libsndfile reads no part of a page
            part.fault = "" if flags & 4 else "the last page of its stream is not there"
        place += size
    if part:
        if place >= 0:
            part.fault = "its last page is not whole"
        yield part


def _after_tag(data: Bytes, place: int) -> int:
    """Return the first byte after an ID3v2 tag, or `place` without one."""
    if data[place : place + 3] != b"ID3":
        return place
    size = 0
    for byte in data[place + 6 : place + 10]:
        size = size << 7 | byte
    return place + 10 + size


def _frame(data: Bytes, place: int) -> tuple[int, int, int, int] | None:
    """Return size, rate, channels and Xing position of an MP3 frame, or None."""
    head = int.from_bytes(data[place : place + 4], "big")
    version, kbits, rate = head >> 19 & 3, head >> 12 & 15, head >> 10 & 3
    if head >> 21 != 0x7FF or version == 1 or head >> 17 & 3 != 1 or kbits in (0, 15) or rate == 3:
        return None
    is_first = version == 3
    rate_hz = (44100, 48000, 32000)[rate] // {3: 1, 2: 2, 0: 4}[version]
    num_channels = 1 if head >> 6 & 3 == 3 else 2
    size = (144000 if is_first else 72000) * KBITS[is_first][kbits] // rate_hz + (head >> 9 & 1)
    side = (17, 32)[num_channels - 1] if is_first else (9, 17)[num_channels - 1]
    return size, rate_hz, num_channels, place + 4 + side


def _mp3(data: Bytes) -> Iterator[Part]:
    """Yield parts with a Xing header, another format, or after the declared length."""
    part, found, declared, kind, place = None, 0, 0, None, 0
    while place + 4 <= len(data):
        if (after := _after_tag(data, place)) > place:
            place = after
            continue
        frame = _frame(data, place)
        end = place + frame[0] if frame else 0
        if not frame or (end + 4 <= len(data) and part is None and not _frame(data, end)):
            place = next((at for at in _syncs(data, place + 1)), len(data))
            continue
        heading = _declared(data, place, frame[3])
        if part is None or heading is not None or frame[1:3] != kind or (declared and found > declared + 1):
            if part:
                yield _counted(part, found, declared)
            part, found, declared, kind = Part(place, place), -1 if heading is not None else 0, heading or 0, frame[1:3]
        if end > len(data):
            part.fault = "its last frame is not whole"
        part.end, found, place = min(end, len(data)), found + (end <= len(data)), end
    if part:
        yield _counted(part, found, declared)


def _counted(part: Part, found: int, declared: int) -> Part:
    if found < declared - 1:
        part.fault = f"{found} of {declared} frames are there"
    return part


def _syncs(data: Bytes, place: int) -> Iterator[int]:
    """Yield positions of tags and of frames followed by a frame, a tag or the end."""
    tag = data.find(b"ID3", place)  # once: each search may go to the end
    while place < len(data):
        sync = data.find(b"\xff", place)
        if tag >= 0 and (sync < 0 or tag < sync):
            yield tag
        if sync < 0:
            return
        frame = _frame(data, sync)
        if frame and (sync + frame[0] == len(data) or _frame(data, sync + frame[0])):
            yield sync
        place = sync + 1


def _declared(data: Bytes, place: int, xing: int) -> int | None:
    """Return the frames that a Xing header declares, 0 if unknown, None without one."""
    if data[xing : xing + 4] in (b"Xing", b"Info"):
        return (
            int.from_bytes(data[xing + 8 : xing + 12], "big")
            if data[xing + 7 : xing + 8] > b"\0" and data[xing + 7] & 1
            else 0
        )
    if data[place + 36 : place + 40] == b"VBRI":
        return int.from_bytes(data[place + 50 : place + 54], "big")
    return None
