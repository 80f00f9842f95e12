"""Read normalised features of a set by utterance, and the samples beside them."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from asrtool.data.features.cmvn import Cmvn
from asrtool.data.storage.index import RERUN, SETTINGS, WINDOW_SHARDS, ShardIndex, Utterance, read_index
from asrtool.data.storage.shard import SCALE, Shard
from asrtool.data.storage.shard_offsets import SAMPLES, ShardRanges, ShardTable, open_span
from asrtool.data.storage.transcripts import Transcripts
from asrtool.errors import AsrtoolError

if TYPE_CHECKING:
    from asrtool.data.workers.loader import Decoders

Opened = TypeVar("Opened")


class OpenShards(Generic[Opened]):
    """Shards of a set by utterance; the last ones stay open."""

    def __init__(
        self,
        directory: Path,
        index: Sequence[Utterance],
        open_one: Callable[[ShardRanges, Sequence[Utterance]], Opened],
    ) -> None:
        """Take `open_one`, which gets the byte ranges of a shard, and its utterances."""
        if isinstance(index, ShardIndex):
            self.num_frames, first = index.num_frames, index.first.tolist()
        else:
            self.num_frames = sum(utterance.num_frames for utterance in index)
            shards = [None, *(utterance.shard for utterance in index), None]
            first = [i for i in range(len(index) + 1) if shards[i] != shards[i + 1]]
        table = ShardTable(directory)

        def open_shard(k: int) -> Opened:
            utterances = index[first[k] : first[k + 1]]
            return open_one(table[utterances[0].shard], utterances)

        self._first = first
        self._open = functools.lru_cache(2 * WINDOW_SHARDS)(open_shard)  # shards of this window and the previous one

    def find(self, i: int) -> tuple[Opened, int]:
        """Return the shard of utterance `i`, and the utterance's position there."""
        k = bisect.bisect_right(self._first, i) - 1
        return self._open(k), i - self._first[k]


class FeatureReader:
    """Reader of the features of one set, for example `features/train`.

    `cmvn` is `speaker`, `utterance`, `global` or `none`. An utterance is decoded when it is read, in any
    order; if the whole set fits `cache_bytes`, decoded features stay in memory. So do the byte ranges in the last
    shards.
    """

    def __init__(
        self,
        directory: Path,
        cmvn: str,
        cache_bytes: int = 0,
        index: Sequence[Utterance] | None = None,
        decoders: Decoders | None = None,
    ) -> None:
        """Open a set with its `index` if known, else read it into memory.

        `decoders`, if given, decode for `read_several`. Raises AsrtoolError if index or normalisation is missing or
        broken.
        """
        self.directory = Path(directory)
        self.index: Sequence[Utterance] = read_index(self.directory) if index is None else index
        self._cmvn = Cmvn(self.directory, cmvn)
        self.num_bins = self._cmvn.num_bins
        self._decoders = decoders
        self._shards = OpenShards(self.directory, self.index, functools.partial(_open, self.directory))
        self._keeps = self._shards.num_frames * self.num_bins * 4 <= cache_bytes
        self._kept: dict[int, np.ndarray] = {}

    def read(self, i: int) -> np.ndarray:
        """Return features of utterance `i`, (num_frames, num_bins) float32, read-only.

        Raises AsrtoolError naming the shard if it is missing, broken, or not the one the index describes.
        """
        found = self._kept.get(i)
        return self._keep(i, self._decode(i)) if found is None else found

    def read_several(self, positions: Sequence[int]) -> list[np.ndarray]:
        """Read several utterances, side by side if there are decoders."""
        if not self._decoders:
            return [self.read(i) for i in positions]
        missing = [i for i in positions if i not in self._kept]
        lengths = [self.index[i].num_frames for i in missing]
        decoded = dict(zip(missing, self._decoders.read(missing, lengths, self.num_bins), strict=True))
        return [self._keep(i, decoded[i]) if i in decoded else self._kept[i] for i in positions]

    @functools.cached_property
    def _transcripts(self) -> Transcripts:
        return Transcripts(self.directory)

    def texts(self, utterances: Sequence[Utterance]) -> list[str | None]:
        """Return the text of each; None if it was removed.

        Raises AsrtoolError if the texts are missing or broken.
        """
        return self._transcripts.texts(utterances)

    def _keep(self, i: int, feats_TF: np.ndarray) -> np.ndarray:
        if self._keeps:
            self._kept[i] = feats_TF
        return feats_TF

    def _decode(self, i: int) -> np.ndarray:
        shard, position = self._shards.find(i)
        utterance = self.index[i]
        feats_TF = shard.read(position)
        if feats_TF.shape != (utterance.num_frames, self.num_bins):
            raise _other_shard(shard)
        return self._cmvn.normalise(utterance.speaker, feats_TF)


def _open(directory: Path, ranges: ShardRanges, utterances: Sequence[Utterance]) -> Shard:
    """Open a shard; AsrtoolError as FeatureReader.read."""
    shard = Shard(directory, ranges)
    if [(one.id, one.num_frames) for one in utterances] != list(zip(shard.ids, shard.num_frames, strict=True)):
        raise _other_shard(shard)
    return shard


def _other_shard(shard: Shard) -> AsrtoolError:
    return AsrtoolError(f"{shard.name} is not the one index.jsonl describes", RERUN)


class SampleReader:
    """Reader of the samples of the utterances of `directory`, whose index is `index`."""

    def __init__(self, directory: Path, index: Sequence[Utterance], rate_hz: int) -> None:
        self._shards = OpenShards(directory, index, functools.partial(_map_samples, directory, rate_hz))

    def read(self, i: int) -> np.ndarray:
        """Return samples of utterance `i`, float32 in [-1, 1].

        Raises AsrtoolError naming the file if it is missing or does not fit the index.
        """
        (samples, ends), position = self._shards.find(i)
        begin, end = ends[position : position + 2].tolist()
        return samples[begin:end].astype(np.float32) / SCALE


def _map_samples(
    directory: Path, rate_hz: int, ranges: ShardRanges, utterances: Sequence[Utterance]
) -> tuple[np.ndarray, np.ndarray]:
    """Map the samples of a shard; return them and a 0 before their ends."""
    path = directory / SAMPLES.format(ranges.samples.file)
    try:
        data = open_span(directory, SAMPLES, ranges.samples)
        with data.open() as file:
            samples = np.memmap(file, "<i2", "r", data.begin, (data.size // 2,)).view(np.ndarray)
    except (OSError, ValueError) as error:
        raise AsrtoolError(f"{path} cannot be read: {error}", RERUN) from error
    ends = np.cumsum([0, *(round(utterance.duration_s * rate_hz) for utterance in utterances)])
    if len(samples) != ends[-1]:
        raise AsrtoolError(f"{path} has {len(samples)} samples, index.jsonl says {ends[-1]}", RERUN)
    return samples, ends


def reads_audio(directory: Path) -> bool:
    """Return whether a set stores audio and features are computed when read."""
    return (directory / SETTINGS).exists()
