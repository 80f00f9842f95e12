"""Custom lhotse manifests of recordings and supervisions, or of cuts."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import soundfile
from lhotse import AudioSource, Recording, SupervisionSegment

from asrtool.data.audio.remote import read_remote_header
from asrtool.data.batches import load_ahead
from asrtool.data.manifests.manifest import Drop, read_lines
from asrtool.data.manifests.validator import Entry
from asrtool.data.remote import transfer
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.finish import LATE_S, Names, write_set
from asrtool.local.releases.releases import find_files
from asrtool.local.releases.shortened import decode_shortened
from asrtool.local.utterances import Sound, clean_id, is_sphere, locate, read_audio_header, staging
from asrtool.log import progress
from asrtool.settings.data import Data
from asrtool.url import as_url, below, join

CUTS = "*cuts*.jsonl*"
KINDS = ("recordings", "supervisions")
# Sources by the id of their recording and their number in it, and what was found.
ToDecode: TypeAlias = dict[tuple[str, int], tuple[AudioSource, Sound]]
NUM_THREADS = 16  # headers read in parallel, since a server may be slow


def prepare_lhotse(folder: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out` from lhotse manifests or cuts in `folder`.

    It may be a file of cuts, or a URL, and so may the sources of recordings. Segments of ref.stm have the label.
    Raises AsrtoolError if not exactly one of each exists, one is corrupt, too much cannot be used, or a server does
    not answer or refuses.
    """
    if not as_url(folder) and not is_lhotse_folder(folder) and is_cuts(folder):
        path = folder if folder.is_file() else _the_manifest(folder, "cuts")
        cuts = Cuts("recordings")
        for entry in read_lines(path, _cut):
            cuts.add(entry, entry["recording"], repr(entry["recording"]))
        cuts.log_renamed(path)
        _write(path.parent, out, cuts.recordings, cuts.segments, cuts.drops, data, label)
        return
    with _manifests_of(folder) as copy:
        recordings: dict[str, Recording] = {}
        for recording in read_lines(_the_manifest(copy, "recordings"), _recording):
            if (other := recordings.setdefault(recording.id, recording)) is not recording:
                files = " and ".join(source.source for each in (other, recording) for source in each.sources)
                what = f"{folder}: two recordings are {recording.id}, of {files}"
                raise AsrtoolError(what, "make the ids unique, also without blanks")
        supervisions = list(read_lines(_the_manifest(copy, "supervisions"), read_supervision))
    _write(folder, out, recordings, supervisions, [], data, label)


def is_lhotse_folder(folder: Path) -> bool:
    """Return whether `folder` holds lhotse manifests."""
    return any(folder.glob("*recordings*.jsonl*"))


def is_cuts(source: Path) -> bool:
    """Return whether `source` is a file of lhotse's cuts, or a folder with one."""
    return fnmatch.fnmatch(source.name, CUTS) if source.is_file() else any(source.glob(CUTS))


@contextlib.contextmanager
def _manifests_of(folder: Path) -> Iterator[Path]:
    """Yield a folder with the manifests *KIND*.jsonl.gz of KINDS, a copy for a URL.

    Raises AsrtoolError if not exactly one of each exists, and as transfer.fetch.
    """
    url = as_url(folder)
    if not url:
        yield folder
        return
    there = transfer.names_in(url)
    if there is None:
        likely = [f"{kind}.jsonl{suffix}" for kind in KINDS for suffix in (".gz", "")]
        there = [name for name in likely if transfer.version_of(join(url, name))]
    with staging() as copy:
        for kind in KINDS:
            found = fnmatch.filter(there, f"*{kind}*.jsonl*")
            if len(found) != 1:
                expected = f"expected one, {kind}.jsonl.gz where the server has no lists (http)"
                what = f"{url}: {len(found)} files *{kind}*.jsonl.gz, {expected}"
                raise AsrtoolError(what, "give the address of a folder with one manifest of each")
            with (copy / found[0]).open("wb") as file:
                transfer.fetch(join(url, found[0]), file.write)
        yield copy


def _the_manifest(folder: Path, what: str) -> Path:
    found = [path for path in find_files(folder, f"*{what}*.jsonl*") if path.parent == folder]
    if len(found) != 1:
        raise AsrtoolError(
            f"{folder}: {len(found)} files *{what}*.jsonl.gz, expected one", "give a folder with one manifest of each"
        )
    return found[0]


class Cuts:
    """Recordings and utterances of cuts; an utterance in several cuts is taken once.

    Ids may stand for several recordings, as lhotse names a file without its folder: the second is called ID-2.
    """

    def __init__(self, kind: str) -> None:
        self.recordings: dict[str, Recording] = {}
        self.segments: list[SupervisionSegment] = []
        self.drops: list[Drop] = []
        self._names, self._utterances = Names(kind), Names("utterances")

    def add(self, cut: Entry, recording: Recording | str, content: str = "") -> None:
        """Add a cut with its recording of that content, or with the reason of its absence."""
        if isinstance(recording, str):
            self.drops.append(Drop(str(cut.get("id")), "unusable audio", recording))
            return
        recording.id, _ = self._names.add(recording.id, content)
        self.recordings.setdefault(recording.id, recording)
        for segment in cut["supervisions"]:
            begin_s = round(cut["start"] + segment.start, 8)
            fields = recording.id, round(begin_s, 4), round(segment.duration, 4), segment.channel, segment.text
            name, is_new = self._utterances.add(segment.id, fields)
            if is_new:
                found = dataclasses.replace(segment, id=name, recording_id=recording.id, start=begin_s)
                self.segments.append(found)

    def log_renamed(self, where: object) -> None:
        """Log the numbers of renamed recordings and utterances."""
        self._names.log_renamed(where)
        self._utterances.log_renamed(where)


def not_mono(cut: Entry) -> str:
    """Return the reason for which a cut has no audio of its own, or ''."""
    has_audio = cut["type"] == "MonoCut" and "recording" in cut
    return "" if has_audio else f"a {cut['type']}, expected a MonoCut with a recording"


def _cut(entry: Entry) -> Entry:
    """Return a checked cut; its recording is a fault if the cut is not mono."""
    cut = {**entry, "id": str(entry["id"]), "recording": not_mono(entry)}
    if not cut["recording"]:
        check(entry, {"start": "a number"})
        cut["recording"] = _recording(entry["recording"])
        cut["supervisions"] = [read_supervision(each) for each in entry.get("supervisions") or []]
    return cut


def _write(
    folder: Path,
    out: Path,
    recordings: dict[str, Recording],
    supervisions: Sequence[SupervisionSegment],
    drops: list[Drop],
    data: Data,
    label: str,
) -> None:
    """Write the usable part of `folder`; `recordings` is emptied to save memory."""
    transcribed = {s.recording_id for s in supervisions}
    drops += [Drop(id_, "no transcript", "no supervision") for id_ in recordings if id_ not in transcribed]
    usable = _usable([r for id_, r in recordings.items() if id_ in transcribed], folder, out, drops)
    recordings.clear()
    whole = (usable.pop(id_).to_dict() for id_ in list(usable))
    write_set(out, whole, supervisions, drops, data, label)


# Values that lhotse does not check, or checks later: expectation, and its test.
TESTS: dict[str, Callable[[Any], bool]] = {
    "a name": lambda value: type(value) in (str, int) and bool(str(value).strip()),
    "a number": lambda value: type(value) in (int, float) and -math.inf < value < math.inf,
    "a number above 0": lambda value: type(value) in (int, float) and 0 < value < math.inf,
    "a whole number above 0": lambda value: type(value) is int and value > 0,
    "the number of one": lambda value: type(value) is int,
    "a list of the numbers of channels": lambda value: type(value) is list and {*map(type, value)} == {int},
    "a name or nothing": lambda value: isinstance(value, str | int | float | None),
    "a text": lambda value: not value or isinstance(value, str),
    "an object": lambda value: not value or isinstance(value, dict),
}
SIZES = {"sampling_rate": "a whole number above 0", "num_samples": "a whole number above 0"}
RECORDING = {"id": "a name", "duration": "a number above 0", **SIZES}
SUPERVISION = {
    "id": "a name",
    "recording_id": "a name",
    "start": "a number",
    "duration": "a number",
    "channel": "the number of one",
    "speaker": "a name or nothing",
    "text": "a text",
    "custom": "an object",
    "alignment": "an object",
}
OPTIONAL = dict.fromkeys(("channel", "speaker", "text", "custom", "alignment"))


def check(entry: Entry, expected: Mapping[str, str]) -> None:
    """Raise ValueError for a value of another kind, KeyError for a missing one."""
    for key, kind in expected.items():
        if not TESTS[kind](entry[key]):
            raise ValueError(f"{key} is {entry[key]!r}, expected {kind}")
        if kind == "a name":
            str(entry[key]).encode()  # half of a surrogate pair cannot be written


def _recording(entry: Entry) -> Recording:
    """Parse a recording; ValueError or KeyError for values that lhotse rejects later.

    Its id gets no blanks.
    """
    check(entry, RECORDING)
    for source in entry["sources"]:
        if not isinstance(source, dict) or not isinstance(source["source"], str):
            raise ValueError(f"sources has {source!r}, expected an entry with the path of a file")
        check(source, {"channels": "a list of the numbers of channels"})
    if entry.get("channel_ids") is not None:
        check(entry, {"channel_ids": "a list of the numbers of channels"})
    try:
        return Recording.from_dict({**entry, "id": clean_id(str(entry["id"]))})
    except AssertionError as error:  # unknown transform
        raise ValueError(str(error)) from error


def read_supervision(entry: Entry) -> SupervisionSegment:
    """Parse a supervision; ids and speaker have no blanks. Raises as `_recording`."""
    check({**OPTIONAL, **entry}, SUPERVISION)
    names = {key: clean_id(str(entry[key])) for key in ("id", "recording_id", "speaker") if entry.get(key) is not None}
    return SupervisionSegment.from_dict({**entry, **names, "speaker": names.get("speaker") or None})


def _usable(recordings: Sequence[Recording], folder: Path, out: Path, drops: list[Drop]) -> dict[str, Recording]:
    """Return the readable recordings with absolute paths; others go to `drops`.

    Relative paths are below the manifests' URL, or where `locate` finds them. Formats that lhotse cannot read in full
    are decoded once, to `out`/audio.
    """
    to_decode: ToDecode = {}
    look = functools.partial(_fault, folder=folder, to_decode=to_decode)
    with contextlib.closing(load_ahead(look, recordings, 2 * NUM_THREADS, NUM_THREADS)) as looked:
        found = list(progress(looked, "look at audio", len(recordings), "file"))
    faults = {recording.id: fault for recording, fault in zip(recordings, found, strict=True) if fault}
    names = {f"{id_}-{number}": (id_, number) for id_, number in sorted(to_decode) if id_ not in faults}
    broken: list[Drop] = []
    sounds = {name: to_decode[key][1] for name, key in names.items()}
    for name, sound in decode_shortened(sounds, out / "audio", broken).items():
        to_decode[names[name]][0].source = os.path.abspath(sound.path)
    faults |= {names[drop.id][0]: drop.detail for drop in broken}
    drops += [Drop(id_, "unusable audio", fault) for id_, fault in faults.items()]
    return {recording.id: recording for recording in recordings if recording.id not in faults}


def _fault(recording: Recording, folder: Path, to_decode: ToDecode) -> str:
    """Return the fault of an unusable recording, or ''; set its true length.

    `to_decode` gets sources to be decoded.
    """
    if not recording.sources:
        return "its manifest names no file of it"
    lengths: list[tuple[int, int, str]] = []
    is_joined = False
    for number, source in enumerate(recording.sources):
        if source.type not in ("file", "url"):
            return f"source is a {source.type}, expected a file or an address"
        url = as_url(folder)
        address = as_url(source.source) or (below(url, source.source) if url and source.source[0] != "/" else "")
        source.type, source.source = (
            ("url", address) if address else ("file", os.path.abspath(locate(folder, source.source)))
        )
        try:
            if address:
                num_samples, rate_hz, _ = read_remote_header(address)
                lengths.append((num_samples, rate_hz, address))
                continue
            sound = read_audio_header(Path(source.source))
        except soundfile.LibsndfileError as error:
            return f"{address}: no readable audio: {error.error_string}"
        except OSError as error:
            return str(error)
        except AsrtoolError as error:
            if address:  # its server is down, or refuses
                raise
            return error.what
        lengths.append((sound.num_samples, sound.sampling_rate_hz, source.source))
        if sound.num_parts > 1 and recording.transforms:
            what = f"{sound.num_parts} audio files joined in one, whose length after transforms is not declared"
            return f"{source.source}: {what}"
        if sound.num_parts > 1 or is_sphere(sound.path):
            to_decode[recording.id, number] = source, sound
        is_joined = is_joined or sound.num_parts > 1
    if recording.transforms:
        return _fault_of_transforms(recording)
    return settle_length(recording, *min(lengths), is_joined=is_joined)


def _fault_of_transforms(recording: Recording) -> str:
    """Return the reason for which lhotse cannot apply a recording's transforms, or ''."""
    samples_CS = np.random.default_rng(0).normal(0, 0.1, (recording.num_channels, recording.sampling_rate))
    for transform in recording.transforms or ():
        try:
            samples_CS = transform(samples_CS.astype(np.float32), recording.sampling_rate)
        except Exception as error:  # each package has its own
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            return f"its transform {type(transform).__name__} is not supported: {reason}"
    return ""


def settle_length(
    recording: Recording, num_samples: int, sampling_rate_hz: int, where: str, is_joined: bool = False
) -> str:
    """Set the true length of a recording; return the fault if too much is missing.

    The tolerance is lhotse's. Of longer audio the declared part is used, but all of joined files: lhotse declares the
    length of the first.
    """
    if is_joined:
        recording.num_samples = max(recording.num_samples, num_samples)
    missing = recording.num_samples - num_samples
    if sampling_rate_hz != recording.sampling_rate or missing > LATE_S * sampling_rate_hz or not num_samples:
        found = f"{num_samples} samples at {sampling_rate_hz} Hz"
        return f"{where}: {found}, expected {recording.num_samples} at {recording.sampling_rate} Hz"
    if abs(missing) <= LATE_S * sampling_rate_hz:
        recording.num_samples = num_samples
    recording.duration = recording.num_samples / sampling_rate_hz
    return ""
