"""Features on disk, in shards of some hundred utterances: a shard is written once and read whole.

`cuts.NNNNNN.jsonl.gz` is a lhotse CutSet; the features are in `feats.NNNNNN.lca` (storage `lilcom`) or, as Lhotse
Shar, in `features.NNNNNN.tar` (storage `shar`). Both hold log energies that lilcom rounded to 1/32.
"""

from __future__ import annotations

import bisect
import gzip
import json
import tarfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from lhotse import CutSet, Fbank, Features, LilcomChunkyWriter, MonoCut, SupervisionSegment
from lhotse.shar.readers.tar import iterate_tarfile_pairwise
from lhotse.shar.utils import fill_shar_placeholder
from lhotse.shar.writers.array import ArrayTarWriter

from asrtool.corpus.cmvn import Cmvn
from asrtool.corpus.index import RERUN, WINDOW_SHARDS, Utterance, read_index
from asrtool.corpus.settings import Features as FeatureSettings
from asrtool.corpus.shard_index import ShardIndex
from asrtool.errors import AsrtoolError

if TYPE_CHECKING:
    from asrtool.corpus.decoders import Decoders, Loading

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
                type=Fbank.name,
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


def read_shard(directory: Path, number: int) -> list[np.ndarray]:
    """The features of all utterances of shard `number`, each (T, F) float32, in storage order.

    Raises AsrtoolError naming the shard's files when they are missing or broken.
    """
    tar_path = _tar_path(directory, number)
    try:
        if tar_path.exists():
            return list(_read_tar(tar_path))
        cuts = CutSet.from_jsonl_lazy(_cuts_path(directory, number)).with_features_path_prefix(directory)
        return [cut.load_features() for cut in cuts]
    except (OSError, EOFError, ValueError, AssertionError, RuntimeError, tarfile.TarError, zlib.error) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)  # lhotse adds lines about the call
        raise AsrtoolError(f"{directory}: shard {number:06d} cannot be read: {reason}", RERUN) from error


@dataclass(frozen=True)
class ShardContent:
    """A shard as the index describes it."""

    directory: Path
    number: int
    speakers: Sequence[str]  # of its utterances
    num_frames: Sequence[int]


def read_normalised(shard: ShardContent, cmvn: Cmvn) -> list[np.ndarray]:
    """The features of all utterances of `shard`, as read_shard, normalised.

    Raises AsrtoolError naming the shard when it is missing, broken, or not the one the index describes.
    """
    feats = read_shard(shard.directory, shard.number)
    if [feats_TF.shape for feats_TF in feats] != [(num_frames, cmvn.num_bins) for num_frames in shard.num_frames]:
        raise AsrtoolError(f"{shard.directory}: shard {shard.number:06d} is not the one index.jsonl describes", RERUN)
    return [cmvn.normalise(speaker, feats_TF) for speaker, feats_TF in zip(shard.speakers, feats, strict=True)]


class FeatureReader:
    """Reads the features of one set, for example `features/train`.

    `cmvn` is `speaker`, `global` or `none`. The last WINDOW_SHARDS shards stay in memory, and all of them when the set
    fits `cache_bytes`; so reading in the order of a batch plan decodes each shard once an epoch, or once at all.
    """

    def __init__(
        self,
        directory: Path,
        cmvn: str,
        cache_bytes: int = 0,
        index: ShardIndex | None = None,
        decoders: Decoders | None = None,
    ) -> None:
        """`index` is that of the directory where it is known; without, it is read, and held in memory.

        Shards are read by `decoders`, where there are some. Raises AsrtoolError when the index or the normalisation is
        missing or broken.
        """
        self.directory = Path(directory)
        self.index: Sequence[Utterance] = read_index(self.directory) if index is None else index
        self._cmvn = Cmvn(self.directory, cmvn)
        self.num_bins = self._cmvn.num_bins
        self._decoders = decoders
        self._first, num_frames = _places(self.index)
        window = 2 * WINDOW_SHARDS if decoders else WINDOW_SHARDS  # the next one is read while this one is trained
        self._kept_shards = len(self._first) if num_frames * self.num_bins * 4 <= cache_bytes else window
        self._shards: OrderedDict[int, list[np.ndarray] | Loading] = OrderedDict()

    def fetch(self, positions: Iterable[int]) -> None:
        """Have the decoders, where there are some, begin with the shards of utterances that are read next."""
        if self._decoders:
            for place in dict.fromkeys(map(self._place, positions)):
                self._touch(place)

    def read(self, i: int) -> np.ndarray:
        """Features of utterance `i` of the index, (num_frames, num_bins) float32; shared, so not to be changed.

        Raises AsrtoolError naming the shard when it is missing, broken, or not the one the index describes.
        """
        place = self._place(i)
        self._touch(place)
        found = self._shards[place]
        if not isinstance(found, list):
            found = self._shards[place] = found.result()
        return found[i - self._first[place]]

    def _place(self, i: int) -> int:
        """That of the shard of an utterance, in the order of shards."""
        return bisect.bisect_right(self._first, i) - 1

    def _touch(self, place: int) -> None:
        """Have a shard among the last ones."""
        if place not in self._shards:
            self._shards[place] = self._load(place)
            if len(self._shards) > self._kept_shards:
                self._shards.popitem(last=False)
        self._shards.move_to_end(place)

    def _load(self, place: int) -> list[np.ndarray] | Loading:
        behind = self._first[place + 1] if place + 1 < len(self._first) else len(self.index)
        utterances = self.index[self._first[place] : behind]
        shard = ShardContent(
            self.directory,
            utterances[0].shard,
            [utterance.speaker for utterance in utterances],
            [utterance.num_frames for utterance in utterances],
        )
        return self._decoders.begin(shard, self.num_bins) if self._decoders else read_normalised(shard, self._cmvn)


def _places(index: Sequence[Utterance]) -> tuple[list[int], int]:
    """Where the shards of a set begin in its index, and the frames of all."""
    if isinstance(index, ShardIndex):
        return index.first[:-1].tolist(), index.num_frames
    changes = (i for i, utterance in enumerate(index) if not i or utterance.shard != index[i - 1].shard)
    return list(changes), sum(utterance.num_frames for utterance in index)


def _read_tar(path: Path) -> Iterator[np.ndarray]:
    # CutSet.from_shar does the same but leaves the file open.
    with tarfile.open(path, "r:") as tar:
        for (data, name), (manifest, _) in iterate_tarfile_pairwise(tar):
            features = Features.from_dict(json.loads(manifest))
            fill_shar_placeholder(features, data, name)
            yield features.load()


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
