"""Features from disk: normalised, by position in the index, whole shards at a time."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np

from asrtool.corpus.cmvn import Cmvn
from asrtool.corpus.index import RERUN, WINDOW_SHARDS, read_index
from asrtool.corpus.shard import read_shard
from asrtool.errors import AsrtoolError


class FeatureReader:
    """Reads the features of one set, for example `features/train`.

    `cmvn` is `speaker`, `global` or `none`. The last WINDOW_SHARDS shards stay in memory, and all of them when the set
    fits `cache_bytes`; so reading in the order of a batch plan decodes each shard once an epoch, or once at all.
    """

    def __init__(self, directory: Path, cmvn: str, cache_bytes: int = 0) -> None:
        """Raises AsrtoolError when the index or the normalisation is missing or broken."""
        self.directory = Path(directory)
        self.index = read_index(self.directory)
        self._cmvn = Cmvn(self.directory, cmvn)
        self.num_bins = self._cmvn.num_bins
        self._first: dict[int, int] = {}  # shard -> position of its first utterance in the index
        for i, utterance in enumerate(self.index):
            self._first.setdefault(utterance.shard, i)
        num_bytes = sum(utterance.num_frames for utterance in self.index) * self.num_bins * 4
        self._kept_shards = len(self._first) if num_bytes <= cache_bytes else WINDOW_SHARDS
        self._shards: OrderedDict[int, list[np.ndarray]] = OrderedDict()

    def read(self, i: int) -> np.ndarray:
        """Features of utterance `i` of the index, (num_frames, num_bins) float32; shared, so not to be changed.

        Raises AsrtoolError naming the shard when it is missing, broken, or not the one the index describes.
        """
        shard = self.index[i].shard
        if shard in self._shards:
            self._shards.move_to_end(shard)
        else:
            self._shards[shard] = self._load(shard)
            if len(self._shards) > self._kept_shards:
                self._shards.popitem(last=False)
        return self._shards[shard][i - self._first[shard]]

    def _load(self, shard: int) -> list[np.ndarray]:
        feats = read_shard(self.directory, shard)
        first = self._first[shard]
        utterances = [u for u in self.index[first : first + len(feats)] if u.shard == shard]
        found = [feats_TF.shape for feats_TF in feats]
        expected = [(u.num_frames, self.num_bins) for u in utterances]
        after = first + len(feats)
        if found != expected or (after < len(self.index) and self.index[after].shard == shard):
            raise AsrtoolError(f"{self.directory}: shard {shard:06d} is not the one index.jsonl describes", RERUN)
        return [self._cmvn.normalise(u.speaker, feats_TF) for u, feats_TF in zip(utterances, feats, strict=True)]
