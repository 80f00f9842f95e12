"""Read audio of any length block by block: files, pipes, samples in memory.

libsndfile reads most formats; SPHERE with shorten, pipes, and joined files are read here, and ffmpeg reads the rest.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import soundfile

from asrtool.data.audio.joined import Part, describe_faults, open_parts, parts_of, read_format
from asrtool.data.audio.sphere import read_header, read_sphere
from asrtool.errors import AsrtoolError
from asrtool.url import refuse_address

if TYPE_CHECKING:
    import torch

INPUT = Path("/dev/stdin")
STANDARD_INPUT = ("-", str(INPUT))
BLOCK_S = 1.0
MAX_HEADER_BYTES = 4096  # bytes of a file without audio, at most
LOUDEST = 1e6  # larger samples are no sound; full scale is 1
START_BYTES = 12  # first bytes of a pipe, which show if it is WAV
SOUGHT = ("FLAC", "MP3")  # formats that libsndfile opens in a pipe, and then cannot read there
TO_PIPE = "pipe in plain WAV, as of sox FILE -t wav - or ffmpeg -i FILE -f wav -, or name the file itself"
FFMPEG = ("ffmpeg", "-nostdin", "-v", "error", "-i")
TO_WAV = ("-vn", "-f", "wav", "-c:a", "pcm_f32le", "pipe:1")
SUFFIXES = (
    ".wav", ".flac", ".sph", ".ogg", ".opus", ".mp3", ".m4a", ".aac", ".aif", ".aiff", ".au", ".wma", ".mp4", ".webm",
)  # fmt: skip


class Cut(Protocol):
    """Cut or recording of lhotse."""

    id: str

    @property
    def sampling_rate(self) -> int:
        """Sampling rate in Hz."""

    def load_audio(self) -> Any:
        """Return samples (channels, S)."""


# Path of a file, samples and their rate in Hz, or what lhotse has. Samples are (S,) or (channels, S), in [-1, 1] or
# whole numbers of 16 or 32 bits.
AudioInput: TypeAlias = "str | Path | tuple[np.ndarray | torch.Tensor, int] | Cut"


@dataclass(frozen=True)
class Sound:
    """An open recording. Blocks are float32 (channels, samples) in [-1, 1]."""

    name: str
    sampling_rate_hz: int
    num_channels: int
    duration_s: float | None  # None if only the end shows it, as of a pipe
    blocks: Iterator[np.ndarray]
    path: str = ""  # path as given; empty for samples


@dataclass(frozen=True)
class _Source:
    """File to open by its `path`, with its title in messages and the recording's name."""

    path: Path
    title: str
    name: str


@contextlib.contextmanager
def open_sound(audio: AudioInput, block_s: float = BLOCK_S, live: bool = False) -> Iterator[Sound]:
    """Open a file, pipe, standard input for ``-``, or samples; blocks have `block_s`.

    A pipe with WAV is read as it comes, any other format to its end first; with `live` each is read as it comes.
    Raises AsrtoolError if it cannot be read, also while blocks are read.
    """
    if not isinstance(audio, str | Path):
        yield _open_memory(audio, block_s)
        return
    path = audio
    if str(path) in STANDARD_INPUT:
        source = _Source(INPUT, "standard input", name_of(path))
    else:
        refuse_address(path)
        source = _Source(Path(path).absolute(), readable(Path(path)), readable(name_of(path)))
    if not is_pipe(path):
        opened = _open_path(source, block_s)
    else:
        opened = _live(source, block_s) if live else _open_any_pipe(source, block_s)
    with opened as sound:
        yield replace(sound, path=str(path))


def is_pipe(path: str | Path) -> bool:
    """Return whether a path can be read only once and in order.

    That is standard input, a named pipe, ``<(...)``, or a device.
    """
    if str(path) in STANDARD_INPUT:
        return True
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def name_of(path: str | Path) -> str:
    """Return the name of a recording: its file without suffix, or ``stdin``."""
    return INPUT.stem if str(path) in STANDARD_INPUT else Path(path).stem


def readable(path: str | Path) -> str:
    r"""Return a name that is valid UTF-8; other bytes are written as \xe9."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _open_memory(audio: Any, block_s: float) -> Sound:
    name, samples, rate_hz = "audio", audio, None
    if isinstance(audio, tuple) and len(audio) == 2:
        samples, rate_hz = audio
    elif hasattr(audio, "load_audio"):
        name, samples, rate_hz = audio.id, audio.load_audio(), audio.sampling_rate
    samples = samples.detach().cpu().numpy() if hasattr(samples, "cpu") else samples  # an open file has detach, too
    if not isinstance(samples, np.ndarray) or not isinstance(rate_hz, int) or rate_hz < 1:
        what = f"audio is of type {type(audio).__name__}, expected a path, (samples, sampling rate) or a lhotse cut"
        raise AsrtoolError(what, "give an array or a tensor with its rate, as in (samples, 8000)")
    samples_CS = np.atleast_2d(samples)
    if samples_CS.ndim > 2 or len(samples_CS) > max(1, samples_CS.shape[1]):
        what = f"{name}: samples of shape {samples.shape}, expected (samples,) or (channels, samples)"
        raise AsrtoolError(what, "transpose them, as in samples.T")
    if not (samples.dtype.kind == "f" or samples.dtype in (np.int16, np.int32)):
        raise AsrtoolError(f"{name}: samples of type {samples.dtype}, expected float or int16", "convert them")
    scale = 1.0 if samples.dtype.kind == "f" else -float(np.iinfo(samples.dtype).min)
    size = round(block_s * rate_hz)
    num_samples = samples_CS.shape[1]
    blocks = (samples_CS[:, begin : begin + size].astype(np.float32) for begin in range(0, num_samples, size))
    scaled = (block_CS / np.float32(scale) for block_CS in blocks)
    return Sound(name, rate_hz, len(samples_CS), num_samples / rate_hz, _silenced(name, scaled))


@contextlib.contextmanager
def _open_path(source: _Source, block_s: float) -> Iterator[Sound]:
    if not os.path.isfile(source.path):
        what = f"{source.title}: {'is a folder' if os.path.isdir(source.path) else 'no such file'}"
        raise AsrtoolError(what, "name an audio file")
    if _is_shortened(source):
        yield _open_samples(source, block_s)
        return
    parts = parts_of(source.path)
    if describe_faults(parts):
        yield _open_joined(source, parts, block_s)
    elif (file := _known(source.path)) is not None:
        with file:
            _warn_of_no_audio(source, file)
            yield _open_file(source, file, block_s, is_whole=True)
    else:
        with _converted(source) as file:
            yield _open_file(source, file, block_s, is_whole=False)


@contextlib.contextmanager
def _open_any_pipe(source: _Source, block_s: float) -> Iterator[Sound]:
    """Read WAV while it arrives; keep other formats in a file, which can be sought."""
    with _open_pipe(source) as pipe, tempfile.NamedTemporaryFile(prefix="asrtool-") as kept:
        start = _read(pipe, START_BYTES)
        if not start:
            raise AsrtoolError(f"{source.title}: is empty", "see why the command that feeds it wrote nothing")
        kept.write(start)
        kept.flush()
        if start[:4] in (b"RIFF", b"RF64") and start[8:] == b"WAVE":
            # A pipe cannot be rewound, so cat repeats the bytes read; a thread would not survive a fork.
            with _output_of(["cat", kept.name, "-"], source.title, pipe) as (file, output):
                yield _open_stream(source, file, output, block_s)
            return
        try:
            shutil.copyfileobj(pipe, kept)
            kept.flush()
        except OSError as error:
            what = f"{source.title}: cannot be kept in {kept.name}, {(error.strerror or str(error)).lower()}"
            raise AsrtoolError(what, "free some space, or set TMPDIR to a folder with more of it") from error
        with _open_path(replace(source, path=Path(kept.name)), block_s) as sound:
            yield sound


@contextlib.contextmanager
def _live(source: _Source, block_s: float) -> Iterator[Sound]:
    with _open_pipe(source) as pipe:
        try:
            file = soundfile.SoundFile(pipe.fileno(), closefd=False)
        except soundfile.SoundFileError as error:
            what = f"{source.title}: no audio that can be read while it arrives: {_reason(error)}"
            raise AsrtoolError(what, TO_PIPE) from error
        with file:
            if file.format in SOUGHT and not pipe.seekable():
                what = f"{source.title}: {file.format} cannot be read while it arrives"
                raise AsrtoolError(what, TO_PIPE)
            yield _open_stream(source, file, pipe, block_s)


def _open_pipe(source: _Source) -> io.FileIO:
    try:
        if source.path != INPUT:
            return open(source.path, "rb", buffering=0)
        if sys.stdin is not None:  # None if it was closed when Python began
            return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is closed"
        raise AsrtoolError(f"{source.title}: cannot be read: {reason}", "name an audio file, or pipe WAV in") from error
    raise AsrtoolError(f"{source.title}: is closed", "name an audio file, or pipe WAV in")


def _read(pipe: io.FileIO, num_bytes: int) -> bytes:
    """Read `num_bytes`, fewer at the end; a pipe may give them one by one."""
    found = b""
    while len(found) < num_bytes and (more := pipe.read(num_bytes - len(found))):
        found += more
    return found


def _known(path: Path) -> soundfile.SoundFile | None:
    """Open the file with libsndfile, None if it cannot read it."""
    try:
        return soundfile.SoundFile(os.fsencode(path))  # bytes, since soundfile takes no text that is not UTF-8
    except (soundfile.SoundFileError, TypeError):  # the second of x.raw, which would need a rate
        return None


def _warn_of_no_audio(source: _Source, file: soundfile.SoundFile) -> None:
    if not file.frames and source.path.stat().st_size > MAX_HEADER_BYTES:
        logging.warning(
            "%s: its header declares no audio, but %d bytes follow it, as after a recorder died: sox"
            " --ignore-length IN OUT makes a whole file of it", source.title, source.path.stat().st_size,
        )  # fmt: skip


def _open_joined(source: _Source, parts: list[Part], block_s: float) -> Sound:
    """Read joined files one after the other, or the rest of a cut-off file."""
    num_samples, rate_hz, num_channels = read_format(source.path, parts)
    is_whole = not any(part.fault for part in parts)
    num_heard = 0

    def blocks() -> Iterator[np.ndarray]:
        nonlocal num_heard
        for part, file in zip(parts, open_parts(source.path, parts), strict=True):
            try:
                for block_CS in _blocks(source, file, block_s):
                    num_heard += block_CS.shape[1]
                    yield block_CS
            except AsrtoolError:
                if not part.fault:
                    raise
        if not is_whole:
            what = "%s: %s; its first %.1f s were heard; copy it again"
            logging.warning(what, source.title, describe_faults(parts), num_heard / rate_hz)

    return Sound(source.name, rate_hz, num_channels, num_samples / rate_hz if is_whole else None, blocks())


def _open_file(source: _Source, file: soundfile.SoundFile, block_s: float, is_whole: bool) -> Sound:
    duration_s = file.frames / file.samplerate if is_whole else None
    return Sound(source.name, file.samplerate, file.channels, duration_s, _blocks(source, file, block_s))


def _open_stream(source: _Source, file: soundfile.SoundFile, pipe: IO[bytes], block_s: float) -> Sound:
    """Read a pipe; joined WAV files are read once the pipe has ended."""

    def blocks() -> Iterator[np.ndarray]:
        yield from _blocks(source, file, block_s)
        rest = pipe.read()
        if not (next_wav := re.search(rb"RIFF....WAVE", rest, re.DOTALL)):
            return
        with tempfile.NamedTemporaryFile(prefix="asrtool-") as kept:
            kept.write(rest[next_wav.start() :])
            kept.flush()
            with _open_path(replace(source, path=Path(kept.name)), block_s) as more:
                if (more.sampling_rate_hz, more.num_channels) != (file.samplerate, file.channels):
                    what = f"{source.title}: its joined parts differ in sampling rate or channels"
                    raise AsrtoolError(what, "cut it into its parts")
                yield from more.blocks

    return Sound(source.name, file.samplerate, file.channels, None, blocks())


def _blocks(source: _Source, file: soundfile.SoundFile, block_s: float) -> Iterator[np.ndarray]:
    size = round(block_s * file.samplerate)
    file.seekable = lambda: False  # else soundfile seeks after each block, and MP3 at low rates loses sound there

    def blocks() -> Iterator[np.ndarray]:
        num_read = 0
        # No more than the file has: libsndfile would take the rest of a block from what follows it in a pipe.
        while len(block_SC := file.read(min(size, file.frames - num_read or 1), dtype="float32", always_2d=True)):
            num_read += len(block_SC)
            yield np.ascontiguousarray(block_SC.T)

    try:
        yield from _silenced(source.title, blocks())
    except soundfile.SoundFileError as error:
        raise AsrtoolError(f"{source.title}: audio breaks off: {_reason(error)}", "replace the file") from error


def _silenced(title: str, blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield `blocks` with NaN and too large samples set to 0; warn at the end."""
    num_bad = 0
    for block_CS in blocks:
        is_bad = ~(np.abs(block_CS) < LOUDEST)
        num_bad += int(is_bad.sum())
        block_CS[is_bad] = 0.0  # else their frames and the level of 30 s around would be NaN
        yield block_CS
    if num_bad:
        what = "%s: %d samples are NaN or too large for sound, and were read as silence; see what wrote them"
        logging.warning(what, title, num_bad)


def _is_shortened(source: _Source) -> bool:
    try:
        with open(source.path, "rb") as file:
            start = file.read(7)
    except OSError as error:
        raise AsrtoolError(
            f"{source.title}: cannot be read: {error.strerror}", "check the path and its permissions"
        ) from error
    return start == b"NIST_1A" and read_header(source.path).is_shortened


def _open_samples(source: _Source, block_s: float) -> Sound:
    samples_SC, rate_hz = read_sphere(source.path)
    size = round(block_s * rate_hz)
    parts = (samples_SC[begin : begin + size] for begin in range(0, len(samples_SC), size))
    blocks = (part_SC.T.astype(np.float32) / 2**15 for part_SC in parts)
    return Sound(source.name, rate_hz, samples_SC.shape[1], len(samples_SC) / rate_hz, blocks)


@contextlib.contextmanager
def _converted(source: _Source) -> Iterator[soundfile.SoundFile]:
    """Convert a format that libsndfile does not read, by ffmpeg, as it is read."""
    if shutil.which(FFMPEG[0]) is None:
        what = f"{source.title}: no audio that libsndfile reads, and ffmpeg, which reads more, is not installed"
        raise AsrtoolError(what, "install ffmpeg, or convert it to WAV or FLAC")
    with _output_of([*FFMPEG, str(source.path), *TO_WAV], source.title) as (file, _):
        yield file


@contextlib.contextmanager
def _output_of(
    command: Sequence[str], title: str, given: io.FileIO | None = None
) -> Iterator[tuple[soundfile.SoundFile, IO[bytes]]]:
    """Open the audio that a command writes, and the pipe with the rest.

    `given` is its standard input.
    """
    process = subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        try:
            file = soundfile.SoundFile(process.stdout.fileno(), closefd=False)
        except soundfile.SoundFileError as error:
            process.kill()
            reason = next(iter(process.stderr.read().decode(errors="replace").splitlines()), _reason(error))
            raise AsrtoolError(
                f"{title}: no readable audio: {reason}", "replace it, or make plain WAV of it"
            ) from error
        with file:
            yield file, process.stdout
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def _reason(error: Exception) -> str:
    return getattr(error, "error_string", None) or str(error)
