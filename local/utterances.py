"""Shared by all corpora: check audio files, read transcripts, apply text rules."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import re
import tempfile
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.data.audio.joined import describe_faults, parts_of, read_format
from asrtool.data.audio.sphere import check_sphere, count_channels, read_header
from asrtool.data.manifests.manifest import Drop
from asrtool.data.manifests.validator import Entry
from asrtool.errors import AsrtoolError, printable
from asrtool.files import FULL
from asrtool.local.releases.shortened import decode_shortened
from asrtool.local.text.text_rules import Unusable
from asrtool.log import progress

if TYPE_CHECKING:
    from lhotse import Recording, SupervisionSegment

# By their number; that of all recordings is one object.
CHANNELS = {1: [0], 2: [0, 1]}
UNREAD = (".m4a", ".aac", ".mp4", ".wma", ".webm", ".amr")  # formats that ffmpeg reads and libsndfile does not
MAKE_MONO = "mix the channels (sox IN OUT remix -) or keep one of them (sox IN OUT remix 1)"  # for mono


class OtherChannels(AsrtoolError):
    """Error for an audio file with another number of channels."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sound:
    """Audio file with a readable header and a usable format."""

    path: Path
    num_samples: int  # samples of one channel
    sampling_rate_hz: int
    num_channels: int = 1
    num_parts: int = 1  # audio files that are joined in it

    @property
    def duration_s(self) -> float:
        return self.num_samples / self.sampling_rate_hz


@contextlib.contextmanager
def staging() -> Iterator[Path]:
    """Yield a folder for a clean copy of a release, for lhotse's preparers.

    Raises AsrtoolError if there is no room.
    """
    from lhotse.audio.backend import get_current_audio_backend, set_current_audio_backend

    previous = get_current_audio_backend()
    set_current_audio_backend("LibsndfileBackend")
    try:
        with tempfile.TemporaryDirectory(prefix="asrtool-") as folder:
            yield Path(folder)
    except OSError as error:
        if error.errno not in FULL:
            raise
        where = tempfile.gettempdir()
        raise AsrtoolError(f"{where}: no room for temporary files", "free some space, or set TMPDIR") from error
    finally:
        set_current_audio_backend(previous)


def usable_audio(
    files: Mapping[str, Path], sampling_rate_hz: int | None, num_channels: int, out: Path, drops: list[Drop]
) -> dict[str, Sound]:
    """Return usable audio `files` (recording id -> path); others go to `drops`.

    Shorten-compressed and joined files are decoded once, to `out`/audio.
    """
    good = {}
    not_mono = []
    for id_, path in progress(files.items(), "look at audio", unit="file"):
        try:
            good[id_] = check_audio(path, sampling_rate_hz, num_channels)
        except AsrtoolError as error:
            has_several = num_channels == 1 and isinstance(error, OtherChannels)
            not_mono += [path] if has_several else []
            drops.append(Drop(id_, "unusable audio", str(error) if has_several else error.what))
    if not_mono:  # even if few: the speaker of each channel is unknown, so none is chosen
        what = f"{len(not_mono)} of {len(files)} audio files have several channels, the first is {not_mono[0]}"
        logging.warning("%s: %s: left out; %s", out, what, MAKE_MONO)
    return decode_shortened(good, out / "audio", drops)


def check_audio(path: Path, sampling_rate_hz: int | None, num_channels: int) -> Sound:
    """Raise AsrtoolError unless `path` is whole audio of that rate and channels.

    OtherChannels for other channels.
    """
    if is_sphere(path):
        check_sphere(path)
    sound = read_audio_header(path)
    if sampling_rate_hz not in (None, sound.sampling_rate_hz):
        raise AsrtoolError(
            f"{path}: sampling rate is {sound.sampling_rate_hz} Hz, expected {sampling_rate_hz} Hz",
            "check that this is the right release, or resample the file",
        )
    if sound.num_channels != num_channels:
        raise OtherChannels(
            f"{path}: {count_channels(sound.num_channels)}, expected {count_channels(num_channels)}",
            MAKE_MONO if num_channels == 1 else "check that this is the right release",
        )
    if not sound.num_samples:
        raise AsrtoolError(f"{path}: no samples in it", "replace the file")
    return sound


def read_audio_header(path: Path) -> Sound:
    """Read the headers of an audio file; AsrtoolError if none or cut off."""
    if not path.is_file():
        raise AsrtoolError(f"{path}: no such file", "correct the path")
    if printable(str(path)) != str(path):
        raise AsrtoolError(f"{path}: its name is not UTF-8, which manifests are", "rename it, for example with convmv")
    if is_sphere(path) and (header := read_header(path)).is_shortened:
        return Sound(path, header.num_samples, header.sampling_rate_hz, header.num_channels)
    import soundfile

    try:
        parts = parts_of(path)
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read: {error.strerror}", "check its permissions") from error
    if any(part.fault for part in parts):
        raise AsrtoolError(f"{path}: {describe_faults(parts)}", "replace the file")
    if parts[1:]:
        return Sound(path, *read_format(path, parts), len(parts))
    try:
        info = soundfile.info(path)
    except soundfile.LibsndfileError as error:
        is_other = path.suffix.lower() in UNREAD
        reason = "of another format, convert it (ffmpeg -i x.m4a x.flac)" if is_other else error.error_string
        raise AsrtoolError(f"{path}: no readable audio: {reason}", "replace the file") from error
    return Sound(path, info.frames, info.samplerate, info.channels)


def locate(directory: Path, name: str) -> Path:
    """Find a file relative to the current directory, `directory` or its parents.

    Defaults to `directory`.
    """
    path = next((path for path in map(Path, name_forms(name)) if path.is_file()), Path(name))
    if path.is_file() or path.is_absolute():
        return path
    real = directory.resolve()
    tried = (place / form for form in name_forms(name) for place in (directory, real, *real.parents))
    return next((path for path in tried if path.is_file()), directory / path)


def name_forms(name: str) -> dict[str, None]:
    """Return `name` and its two Unicode forms: macOS decomposes file names."""
    return dict.fromkeys((name, unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name)))


def is_sphere(path: Path) -> bool:
    """Return whether the file is named as a SPHERE file."""
    return path.suffix.lower() == ".sph"


def check_times(id_: str, start_s: str, end_s: str, sound: Sound, drops: list[Drop]) -> bool:
    """Return whether a segment's times fit its recording, else add a drop."""
    fault = ""
    if not (0 <= float(start_s) < float(end_s) and math.isfinite(float(end_s))):
        fault = f"from {start_s} s to {end_s} s"
    elif float(start_s) >= sound.duration_s:
        fault = f"starts at {start_s} s, the recording ends at {sound.duration_s:.3f} s"
    if fault:
        drops.append(Drop(id_, "bad times", fault))
    return not fault


def read_lines(path: Path, id_: str, drops: list[Drop]) -> list[str]:
    """Return the lines of a transcript; empty and a drop if it cannot be read."""
    text = read_transcript(path, id_, drops)
    if text is None:
        return []
    if not text.strip():
        drops.append(Drop(id_, "empty transcript", f"{path}: no line in it"))
        return []
    return text.splitlines()


def read_transcript(path: Path, id_: str, drops: list[Drop]) -> str | None:
    """Return the text of a file; None, and a drop, if it cannot be read.

    What is not UTF-8 is U+FFFD, at which `normalise` and `normalise_plain` leave out the utterance.
    """
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        drops.append(Drop(id_, "unusable transcript", f"{path}: {error.strerror}"))
        return None


def clean_id(name: str) -> str:
    """Replace blanks and controls in an id by -."""
    return re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", "-", printable(name).strip())


def cut_to_recording(start_s: float, length_s: float, duration_s: float) -> float:
    """Return the length, cut to the recording's end, as lhotse's fix_manifests."""
    end_s = round(start_s + length_s, 8)
    if end_s <= duration_s:
        return length_s
    from lhotse.utils import add_durations

    return add_durations(length_s, duration_s - end_s, sampling_rate=48000)


def make_recording(id_: str, sound: Sound, num_channels: int = 1) -> Recording:
    """Return the manifest entry of a file as a lhotse Recording."""
    from lhotse import Recording

    return Recording.from_dict(recording_entry(id_, sound, num_channels))


def recording_entry(id_: str, sound: Sound, num_channels: int) -> Entry:
    """Return the manifest entry of a file."""
    channels = CHANNELS[num_channels]
    return {
        "id": id_,
        "sources": [{"type": "file", "channels": channels, "source": os.path.abspath(sound.path)}],
        "sampling_rate": sound.sampling_rate_hz,
        "num_samples": sound.num_samples,
        "duration": sound.duration_s,
        "channel_ids": channels,
    }


def entries_of(sounds: dict[str, Sound]) -> Iterator[Entry]:
    """Yield manifest entries of one-channel files; `sounds` is emptied."""
    for id_ in list(sounds):
        yield recording_entry(id_, sounds.pop(id_), 1)


def normalise_all(
    segments: Iterable[SupervisionSegment], rule: Callable[[str], str], drops: list[Drop]
) -> list[SupervisionSegment]:
    """Return segments with normalised text; empty and refused ones go to `drops`."""
    kept = []
    for segment in segments:
        if text := normalised(segment.id, segment.text or "", rule, drops):
            segment.text = text
            kept.append(segment)
    return kept


def normalised(id_: str, text: str, rule: Callable[[str], str], drops: list[Drop]) -> str:
    """Return normalised text; '' and a drop if it is empty or refused."""
    if printable(text) != text:  # JSON may hold half of a pair of surrogates
        text = text.encode(errors="replace").decode().replace("?", "\ufffd")
    try:
        words = rule(text)
    except Unusable as error:
        drops.append(Drop(id_, error.reason, error.detail))
        return ""
    if not words:
        drops.append(Drop(id_, "empty", text or "there is no text"))
    return words


def warn_of_unknown(sides: Iterable[str], known: Collection[str], corpus: str, advice: str) -> None:
    """Warn once if some `sides` of `corpus` have no speaker in `known`.

    Each of them then counts as a speaker of its own.
    """
    sides = list(sides)
    unknown = sum(side not in known for side in sides)
    if unknown:
        logging.warning(
            "%s: the speakers of %d of %d recordings or channels are not known. Each counts as a speaker of its"
            " own, whom features.cmvn = speaker normalises alone. %s",
            corpus, unknown, len(sides), advice[0].upper() + advice[1:],
        )  # fmt: skip
