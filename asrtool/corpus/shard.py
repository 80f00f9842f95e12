"""Features on disk, in shards of some hundred utterances: a shard is written once, and read an utterance at a time.

`cuts.NNNNNN.jsonl.gz` is a lhotse CutSet; the features are in `feats.NNNNNN.lca` (storage `lilcom`) or, as Lhotse
Shar, in `features.NNNNNN.tar` (storage `shar`). Both hold log energies that lilcom rounded to 1/32.
"""

from __future__ import annotations

import gzip
import json
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from lhotse import Fbank, Features, LilcomChunkyWriter, MonoCut, SupervisionSegment
from lhotse.features.io import LilcomChunkyReader, MemoryLilcomReader
from lhotse.shar.writers.array import ArrayTarWriter

from asrtool.corpus.index import RERUN, Utterance
from asrtool.corpus.settings import Features as FeatureSettings
from asrtool.errors import AsrtoolError

CHANNELS = ("A", "B")
Store = Callable[[str, np.ndarray, Features], None]


def write_shard(
    directory: Path, number: int, items: Iterable[tuple[Utterance, np.ndarray]], settings: FeatureSettings
) -> list[Utterance]:
    """Write utterances and their (T, F) features as shard `number`; returns the utterances.

    The same items give the same bytes, at any time and place.
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
            cuts.append(_cut(utterance, features))
    # A gzip header has room for a time; without it the bytes depend on the content alone.
    with gzip.GzipFile(_cuts_path(directory, number), "wb", mtime=0) as file:
        for cut in cuts:
            file.write((json.dumps(cut.to_dict(), ensure_ascii=False) + "\n").encode())
    return utterances


class Shard:
    """Where each utterance of a shard is in its files. What is read is decoded then, and no more.

    A learner trains a part of the utterances of a shard, others the rest; each decodes what it trains.
    """

    def __init__(self, directory: Path, number: int) -> None:
        """Raises AsrtoolError naming the shard when a file of it is missing, broken or cut off; so does `read`."""
        self.name = f"{directory}: shard {number:06d}"
        tar_path = _tar_path(directory, number)
        with self._broken():
            with gzip.open(_cuts_path(directory, number)) as file:
                cuts = list(map(json.loads, file))
            if not cuts:
                raise ValueError("it lists no utterance")
            self.ids = [cut["id"] for cut in cuts]
            self.num_frames = [cut["features"]["num_frames"] for cut in cuts]
            self._archive: _Tar | _Lilcom = _Tar(tar_path) if tar_path.exists() else _Lilcom(directory, cuts)
            if self._archive.num_utterances != len(cuts):
                raise ValueError(f"{tar_path.name} has {self._archive.num_utterances} of {len(cuts)} utterances")

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


class _Lilcom:
    """One file of compressed arrays, one behind the other."""

    def __init__(self, directory: Path, cuts: Sequence[Mapping[str, Any]]) -> None:
        features = [cut["features"] for cut in cuts]
        path = directory / features[0]["storage_path"]
        self._keys = [of_one["storage_key"] for of_one in features]
        self._reader = LilcomChunkyReader(path)
        self.num_utterances = len(self._keys)
        expected, found = sum(map(int, self._keys[-1].split(","))), path.stat().st_size
        if found < expected:
            raise ValueError(f"{path.name} has {found} bytes, expected {expected}")

    def read(self, place: int) -> np.ndarray:
        feats_TF: np.ndarray = self._reader.read(self._keys[place])
        return feats_TF


class _Tar:
    """Of each utterance two members: the compressed array, and a manifest, which says nothing new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with tarfile.open(path, "r:") as tar:
            members = [(member.offset_data, member.size) for member in tar]
        if len(members) % 2:
            raise ValueError(f"{path.name} has {len(members)} members, expected two an utterance")
        self._places = members[::2]
        self.num_utterances = len(self._places)

    def read(self, place: int) -> np.ndarray:
        begin, size = self._places[place]
        with open(self._path, "rb") as file:
            file.seek(begin)
            feats_TF: np.ndarray = MemoryLilcomReader().read(file.read(size))
        return feats_TF


@contextmanager
def _archive(directory: Path, number: int, storage: str) -> Iterator[Store]:
    """Yield a function that stores features and fills in where they are."""
    if storage == "shar":
        with ArrayTarWriter(str(_tar_path(directory, number)), shard_size=None, compression="lilcom") as tar:

            def store_shar(utterance_id: str, feats_TF: np.ndarray, features: Features) -> None:
                features.storage_type = "shar"
                tar.write(utterance_id, feats_TF, features)

            yield store_shar
        return
    name = f"feats.{number:06d}.lca"
    with LilcomChunkyWriter(directory / name) as archive:

        def store_lilcom(utterance_id: str, feats_TF: np.ndarray, features: Features) -> None:
            features.storage_type = archive.name
            features.storage_path = name  # without folder, so that a set can be moved
            features.storage_key = archive.write(utterance_id, feats_TF)

        yield store_lilcom


def _cut(utterance: Utterance, features: Features) -> MonoCut:
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
        features=features,
    )


def _cuts_path(directory: Path, number: int) -> Path:
    return directory / f"cuts.{number:06d}.jsonl.gz"


def _tar_path(directory: Path, number: int) -> Path:
    return directory / f"features.{number:06d}.tar"
