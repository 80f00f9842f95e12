"""Shards of some hundred utterances: written once, read an utterance at a time.

`cuts.NNNNNN.jsonl.gz` is a lhotse CutSet; the features are in `feats.NNNNNN.lca` (storage `lilcom`) or, as Lhotse
Shar, in `features.NNNNNN.tar` (storage `shar`). Both hold log energies that lilcom rounded to 1/32. Storage `flac`
has audio instead (flac.py). A shard is written to files of its own, and may be merged into larger ones
(data/features/compute_shards.py).
"""

from __future__ import annotations

import gzip
import itertools
import json
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from lhotse import Fbank, Features, LilcomChunkyWriter, MonoCut, Recording, SupervisionSegment
from lhotse.features.io import MemoryLilcomReader
from lhotse.shar.writers.array import ArrayTarWriter

from asrtool.data.storage.flac import NUM_FRAMES, FlacArchive, recording_of
from asrtool.data.storage.index import RERUN, Utterance
from asrtool.data.storage.shard_offsets import CUTS, LILCOM, SHAR, Place, Span, data_members, open_span
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Features as FeatureSettings

CHANNELS = ("A", "B")
Store = Callable[[str, np.ndarray, Features], None]


def write_shard(
    directory: Path,
    number: int,
    items: Iterable[tuple[Utterance, np.ndarray]],
    settings: FeatureSettings,
    speed: float = 1.0,
) -> list[Utterance]:
    """Write utterances and their (T, F) features as shard `number`; return them.

    Storage `flac` writes no features: audio is elsewhere. The same items give the same bytes.
    """
    utterances, cuts = [], []
    with _archive(directory, number, settings.storage) as store:
        for utterance, feats_TF in items:
            features = Features(
                type=Fbank.name if settings.type.name == "fbank" else settings.type.name,
                num_frames=utterance.num_frames,
                num_features=settings.num_features,
                frame_shift=settings.frame_shift_ms / 1000,
                sampling_rate=settings.sampling_rate_hz,
                start=0,
                duration=utterance.duration_s,
                storage_type="",
                storage_path="",
                storage_key="",
                recording_id=utterance.recording,
                channels=CHANNELS.index(utterance.channel),
            )
            store(utterance.id, feats_TF, features)
            utterances.append(utterance)
            audio = settings.storage == "flac"
            recording = recording_of(utterance, settings.sampling_rate_hz, speed) if audio else None
            cuts.append(_cut(utterance, features, recording))
    (directory / CUTS.format(number)).write_bytes(_packed(cut.to_dict() for cut in cuts))
    return utterances


def moved_cuts(content: bytes, file: int, shift: int) -> bytes:
    """Return a shard's cuts for features that moved to the archive `file` by `shift`."""
    cuts = _unpacked(content)
    for cut in cuts:
        begin, *sizes = cut["features"]["storage_key"].split(",")
        cut["features"]["storage_key"] = ",".join([str(int(begin) + shift), *sizes])
        cut["features"]["storage_path"] = LILCOM.format(file)
    return _packed(cuts)


def _packed(cuts: Iterable[Mapping[str, Any]]) -> bytes:
    lines = "".join(json.dumps(cut, ensure_ascii=False) + "\n" for cut in cuts)
    return gzip.compress(lines.encode(), mtime=0)  # without a time, so that the bytes depend on the content alone


def _unpacked(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(content).splitlines()]


class Shard:
    """Open shard; an utterance is decoded when it is read.

    A learner trains some utterances of a shard, others the rest; each decodes its own.
    """

    def __init__(self, directory: Path, place: Place) -> None:
        """Open the files at `place`; AsrtoolError if one is missing, broken or cut off.

        So does `read`.
        """
        self.name = f"{directory}: shard {place.number:06d}"
        with self._broken():
            cuts = _unpacked(open_span(directory, CUTS, place.cuts).read())
            if not cuts:
                raise ValueError("it lists no utterance")
            self.ids = [cut["id"] for cut in cuts]
            self.num_frames = [(cut.get("features") or cut["custom"])[NUM_FRAMES] for cut in cuts]
            self._archive = _open_archive(directory, place.data, cuts)

    def read(self, place: int) -> np.ndarray:
        """The features of the utterance at `place` in storage order, (T, F) float32."""
        with self._broken():
            return self._archive.read(place)

    @contextmanager
    def _broken(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)  # lhotse adds lines about the call
            raise AsrtoolError(f"{self.name} cannot be read: {reason}", RERUN) from error


_ERRORS = (
    OSError, EOFError, ValueError, LookupError, AttributeError, TypeError, AssertionError, RuntimeError,
    tarfile.TarError, zlib.error,
)  # fmt: skip


def _open_archive(directory: Path, span: Span, cuts: Sequence[Mapping[str, Any]]) -> FlacArchive | _Tar | _Lilcom:
    if "features" not in cuts[0]:
        return FlacArchive(directory, span, cuts)
    if cuts[0]["features"]["storage_type"] == "shar":
        return _Tar(directory, span, len(cuts))
    return _Lilcom(directory, span, cuts)


class _Lilcom:
    """Compressed arrays, one behind the other, each in pieces of some hundred frames."""

    def __init__(self, directory: Path, span: Span, cuts: Sequence[Mapping[str, Any]]) -> None:
        self._extent, self._begin = open_span(directory, LILCOM, span), span.begin
        self._keys = [cut["features"]["storage_key"] for cut in cuts]
        expected, found = sum(map(int, self._keys[-1].split(","))), span.begin + self._extent.size
        if found < expected:
            raise ValueError(f"{LILCOM.format(span.file)} ends at byte {found}, expected {expected}")

    def read(self, place: int) -> np.ndarray:
        """Its key says where in the file the first piece begins, and how long each is."""
        begin, *sizes = map(int, self._keys[place].split(","))
        ends = list(itertools.accumulate(sizes, initial=0))
        content = self._extent.read(begin - self._begin, ends[-1])
        pieces = [MemoryLilcomReader().read(content[first:end]) for first, end in itertools.pairwise(ends)]
        return np.concatenate(pieces)


class _Tar:
    """Tar archive with two members an utterance: the array, and a manifest."""

    def __init__(self, directory: Path, span: Span, num_utterances: int) -> None:
        self._extent = open_span(directory, SHAR, span)
        self._places = list(data_members(self._extent).values())
        if len(self._places) != num_utterances:
            raise ValueError(f"{SHAR.format(span.file)} has {len(self._places)} of {num_utterances} utterances")

    def read(self, place: int) -> np.ndarray:
        feats_TF: np.ndarray = MemoryLilcomReader().read(self._extent.read(*self._places[place]))
        return feats_TF


@contextmanager
def _archive(directory: Path, number: int, storage: str) -> Iterator[Store]:
    """Yield a function that stores features and fills in where they are."""
    if storage == "flac":
        yield lambda *_: None
        return
    if storage == "shar":
        with ArrayTarWriter(str(directory / SHAR.format(number)), shard_size=None, compression="lilcom") as tar:

            def store_shar(utterance_id: str, feats_TF: np.ndarray, features: Features) -> None:
                features.storage_type = "shar"
                tar.write(utterance_id, feats_TF, features)

            yield store_shar
        return
    name = LILCOM.format(number)
    with LilcomChunkyWriter(directory / name) as archive:

        def store_lilcom(utterance_id: str, feats_TF: np.ndarray, features: Features) -> None:
            features.storage_type = archive.name
            features.storage_path = name  # without folder, so that a set can be moved
            features.storage_key = archive.write(utterance_id, feats_TF)

        yield store_lilcom


def _cut(utterance: Utterance, features: Features, recording: Recording | None) -> MonoCut:
    """Return a cut of stored features; with a `recording` it has only their number."""
    channel = CHANNELS.index(utterance.channel)
    supervision = SupervisionSegment(
        id=utterance.id,
        recording_id=utterance.recording,
        start=0,
        duration=utterance.duration_s,
        channel=channel,
        text=utterance.text,
        speaker=utterance.speaker,
    )
    return MonoCut(
        id=utterance.id,
        start=0,
        duration=utterance.duration_s,
        channel=channel,
        supervisions=[supervision],
        features=None if recording else features,
        recording=recording,
        custom={NUM_FRAMES: utterance.num_frames} if recording else None,
    )
