"""Shards of some hundred utterances: written once, read an utterance at a time.

`cuts.NNNNNN.jsonl.gz` is a lhotse CutSet. Beside it are features or audio:

- storage `lilcom`: features in `feats.NNNNNN.lca`
- storage `shar`: features in `features.NNNNNN.tar`, as Lhotse Shar
- storage `flac`: 16-bit samples as FLAC in `recording.NNNNNN.tar` of Shar, and those beyond full scale as float WAV;
  features are computed when they are read. Copies at other speeds have no audio: it is resampled when it is read.

Stored features are log energies that lilcom rounded to 1/32. A shard is written to files of its own, and may be
merged into larger ones (shard_manifest.py).

Letters in names: S samples, T frames, F features of a frame.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from lhotse import AudioSource, Fbank, Features, LilcomChunkyWriter, MonoCut, Recording, SupervisionSegment
from lhotse.augmentation import Speed
from lhotse.features.io import MemoryLilcomReader
from lhotse.shar.writers.array import ArrayTarWriter
from lhotse.shar.writers.tar import TarWriter

from asrtool.data.audio.joined import encode
from asrtool.data.features.feature_type import FeatureType
from asrtool.data.manifests.speed_copies import copy_id
from asrtool.data.storage.index import RERUN, Utterance, read_feature_settings
from asrtool.data.storage.shard_offsets import (
    CUTS,
    FLAC,
    LILCOM,
    SAMPLES,
    SHAR,
    ShardRanges,
    Span,
    data_members,
    open_span,
)
from asrtool.data.workers.processes import torch_threads
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Features as FeatureSettings

CHANNELS = ("A", "B")
SCALE = 2**15  # integers from -1 to 1
NUM_FRAMES = "num_frames"  # key in the cut of an utterance
Store = Callable[[Utterance, np.ndarray], dict[str, Any]]
Keep = Callable[[Utterance, np.ndarray], object]
Cut = Mapping[str, Any]


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
    with _storing(directory, number, settings, speed) as store:
        for utterance, feats_TF in items:
            utterances.append(utterance)
            cuts.append(_cut(utterance, **store(utterance, feats_TF)))
    (directory / CUTS.format(number)).write_bytes(_packed(cut.to_dict() for cut in cuts))
    return utterances


@contextmanager
def _storing(directory: Path, number: int, settings: FeatureSettings, speed: float) -> Iterator[Store]:
    """Yield a function that stores features and returns their fields of a cut."""

    def describe(utterance: Utterance, storage_type: str = "", path: str = "", key: str = "") -> Features:
        return Features(
            type=Fbank.name if settings.type.name == "fbank" else settings.type.name,
            num_frames=utterance.num_frames,
            num_features=settings.num_features,
            frame_shift=settings.frame_shift_ms / 1000,
            sampling_rate=settings.sampling_rate_hz,
            start=0,
            duration=utterance.duration_s,
            storage_type=storage_type,
            storage_path=path,
            storage_key=key,
            recording_id=utterance.recording,
            channels=CHANNELS.index(utterance.channel),
        )

    def store_nothing(utterance: Utterance, _: np.ndarray) -> dict[str, Any]:
        recording = _recording_of(utterance, settings.sampling_rate_hz, speed)
        return {"recording": recording, "custom": {NUM_FRAMES: utterance.num_frames}}

    def store_shar(utterance: Utterance, feats_TF: np.ndarray) -> dict[str, Any]:
        features = describe(utterance, "shar")
        tar.write(utterance.id, feats_TF, features)
        return {"features": features}

    def store_lilcom(utterance: Utterance, feats_TF: np.ndarray) -> dict[str, Any]:
        # Without folder, so that a set can be moved.
        return {"features": describe(utterance, archive.name, name, archive.write(utterance.id, feats_TF))}

    if settings.storage == "flac":
        yield store_nothing
    elif settings.storage == "shar":
        with ArrayTarWriter(str(directory / SHAR.format(number)), shard_size=None, compression="lilcom") as tar:
            yield store_shar
    else:
        name = LILCOM.format(number)
        with LilcomChunkyWriter(directory / name) as archive:
            yield store_lilcom


def _cut(utterance: Utterance, **stored: Any) -> MonoCut:
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
    return MonoCut(utterance.id, 0, utterance.duration_s, channel, [supervision], **stored)


def _recording_of(utterance: Utterance, rate_hz: int, speed: float = 1.0) -> Recording:
    """Return the recording of an utterance in a tar file, at `speed` for copies."""
    channel = CHANNELS.index(utterance.channel)
    return Recording(
        id=utterance.id.removeprefix(copy_id("", speed)),
        sources=[AudioSource(type="shar", channels=[channel], source="")],
        sampling_rate=rate_hz,
        num_samples=round(utterance.duration_s * rate_hz),
        duration=utterance.duration_s,
        channel_ids=[channel],
        transforms=None if speed == 1 else [Speed(factor=speed).to_dict()],
    )


@contextmanager
def keeping_flac(directory: Path, number: int, rate_hz: int) -> Iterator[Keep]:
    """Yield a function that stores an utterance's samples (S,) in shard `number`."""
    with TarWriter(str(directory / FLAC.format(number)), shard_size=None) as tar:

        def keep(utterance: Utterance, samples_S: np.ndarray) -> None:
            is_beyond = np.abs(samples_S).max(initial=0) > 1
            audio = io.BytesIO(encode(samples_S if is_beyond else to_integers(samples_S), rate_hz))
            tar.write(f"{utterance.id}.{'wav' if is_beyond else 'flac'}", audio)
            manifest = json.dumps(_recording_of(utterance, rate_hz).to_dict()) + "\n"
            tar.write(f"{utterance.id}.json", io.BytesIO(manifest.encode()), count=False)

        yield keep


@contextmanager
def keeping_samples(directory: Path, number: int) -> Iterator[Keep]:
    """Yield a function that stores an utterance's samples (S,) beside shard `number`.

    They are 16-bit little-endian integers, utterance by utterance in storage order; durations give their numbers.
    """
    with open(directory / SAMPLES.format(number), "wb") as file:
        yield lambda _, samples_S: file.write(to_integers(samples_S).tobytes())


def to_integers(samples_S: np.ndarray) -> np.ndarray:
    """Convert samples in [-1, 1] to 16-bit little-endian integers."""
    return np.clip(np.rint(samples_S * SCALE), -SCALE, SCALE - 1).astype("<i2")


def moved_cuts(content: bytes, file: int, shift: int) -> bytes:
    """Return a shard's cuts for features that moved to the archive `file` by `shift`."""
    cuts = _unpacked(content)
    for cut in cuts:
        begin, *sizes = cut["features"]["storage_key"].split(",")
        cut["features"]["storage_key"] = ",".join([str(int(begin) + shift), *sizes])
        cut["features"]["storage_path"] = LILCOM.format(file)
    return _packed(cuts)


def _packed(cuts: Iterable[Cut]) -> bytes:
    lines = "".join(json.dumps(cut, ensure_ascii=False) + "\n" for cut in cuts)
    return gzip.compress(lines.encode(), mtime=0)  # without a time, so that the bytes depend on the content alone


def _unpacked(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(content).splitlines()]


class Shard:
    """Open shard; an utterance is decoded when it is read.

    A learner trains some utterances of a shard, others the rest; each decodes its own.
    """

    def __init__(self, directory: Path, ranges: ShardRanges) -> None:
        """Open the files at `ranges`; AsrtoolError if one is missing, broken or cut off.

        So does `read`.
        """
        self.name = f"{directory}: shard {ranges.number:06d}"
        with self._broken():
            cuts = _unpacked(open_span(directory, CUTS, ranges.cuts).read())
            if not cuts:
                raise ValueError("it lists no utterance")
            self.ids = [cut["id"] for cut in cuts]
            self.num_frames = [(cut.get("features") or cut["custom"])[NUM_FRAMES] for cut in cuts]
            storage = cuts[0].get("features", {"storage_type": "flac"})["storage_type"]
            kinds: dict[str, type[_Flac | _Shar | _Lilcom]] = {"flac": _Flac, "shar": _Shar}
            self._archive = kinds.get(storage, _Lilcom)(directory, ranges.data, cuts)

    def read(self, position: int) -> np.ndarray:
        """Return the features of utterance `position` in storage order, (T, F) float32."""
        with self._broken():
            return self._archive.read(position)

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


class _Lilcom:
    """Concatenated compressed arrays, each in pieces of some hundred frames."""

    def __init__(self, directory: Path, span: Span, cuts: Sequence[Cut]) -> None:
        self._bytes, self._begin = open_span(directory, LILCOM, span), span.begin
        self._keys = [cut["features"]["storage_key"] for cut in cuts]
        expected, found = sum(map(int, self._keys[-1].split(","))), span.begin + self._bytes.size
        if found < expected:
            raise ValueError(f"{LILCOM.format(span.file)} ends at byte {found}, expected {expected}")

    def read(self, position: int) -> np.ndarray:
        """Read by the key: the start of the first piece in the file, and the size of each."""
        begin, *sizes = map(int, self._keys[position].split(","))
        ends = list(itertools.accumulate(sizes, initial=0))
        content = self._bytes.read(begin - self._begin, ends[-1])
        pieces = [MemoryLilcomReader().read(content[first:end]) for first, end in itertools.pairwise(ends)]
        return np.concatenate(pieces)


class _Shar:
    """Tar archive with two members an utterance: the array, and a manifest."""

    def __init__(self, directory: Path, span: Span, cuts: Sequence[Cut]) -> None:
        self._bytes = open_span(directory, SHAR, span)
        self._members = list(data_members(self._bytes).values())
        if len(self._members) != len(cuts):
            raise ValueError(f"{SHAR.format(span.file)} has {len(self._members)} of {len(cuts)} utterances")

    def read(self, position: int) -> np.ndarray:
        feats_TF: np.ndarray = MemoryLilcomReader().read(self._bytes.read(*self._members[position]))
        return feats_TF


class _Flac:
    """Tar archive of audio; features are computed in one thread."""

    def __init__(self, directory: Path, span: Span, cuts: Sequence[Cut]) -> None:
        self._bytes = open_span(directory, FLAC, span)
        self._members = data_members(self._bytes)
        self._recordings = [cut["recording"] for cut in cuts]
        if missing := next((one["id"] for one in self._recordings if one["id"] not in self._members), None):
            raise ValueError(f"{FLAC.format(span.file)} lacks {missing}")
        features = read_feature_settings(directory)
        self._extractor: FeatureType = features.type.load()(features)

    def read(self, position: int) -> np.ndarray:
        recording = self._recordings[position]
        content = self._bytes.read(*self._members[recording["id"]])
        samples_S, rate_hz = soundfile.read(io.BytesIO(content), dtype="float32")
        with torch_threads(1):
            for transform in recording.get("transforms") or ():
                samples_S = Speed(**transform["kwargs"])(samples_S, rate_hz)
            return self._extractor.extract(samples_S)
