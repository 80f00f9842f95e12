"""A vector for each utterance of a set of features, of what its speaker has said before: `speaker_vectors.npy`.

Row i, float32, is that of utterance i of the index. It is the i-vector of the last HISTORY_FRAMES frames or a little
more of utterances that come before it in its shard and have the same speaker, so zeros for the first. A decoder that
hears a conversation from its beginning can do the same.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import zipfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.data.features.ivectors.extractor import Extractor, Sums, fit_extractor
from asrtool.data.storage.index import EXTRACTOR, RERUN, VECTORS, Utterance, scan_index
from asrtool.data.storage.shard import Shard
from asrtool.data.storage.shard_offsets import Places
from asrtool.errors import AsrtoolError

HISTORY_FRAMES = 3000  # half a minute
MOST_FRAMES = 200_000  # that the Gaussians are fitted to
MOST_UTTERANCES = 5_000  # that the rest is fitted to

OfShard = tuple[int, Sequence[str]]  # its number, and the speakers of its utterances
MapShards = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


def fit_to_set(directory: Path, size: int) -> Extractor:
    """An extractor of vectors of `size` values, fitted to utterances of a set that are spread over all of it."""
    utterances = [utterance for utterance, _ in scan_index(directory)]
    few = _spread(utterances, MOST_UTTERANCES)
    feats = [feats_TF for _, feats_TF in _read(directory, few)]
    step = -(-sum(map(len, feats)) // MOST_FRAMES)
    return fit_extractor(np.concatenate([feats_TF[::step] for feats_TF in feats]), feats, size)


def write_vectors(directory: Path, extractor: Extractor, map_shards: MapShards) -> None:
    """Write `directory`/speaker_vectors.npy; `map_shards` gives results in order."""
    jobs: list[OfShard] = []
    for shard, listed in itertools.groupby((one for one, _ in scan_index(directory)), lambda one: one.shard):
        jobs.append((shard, [utterance.speaker for utterance in listed]))
    shape = (sum(len(speakers) for _, speakers in jobs), extractor.size)
    vectors_UR = np.lib.format.open_memmap(directory / VECTORS, mode="w+", dtype=np.float32, shape=shape)
    begin = 0
    for of_shard in map_shards(functools.partial(shard_vectors, directory, extractor), jobs):
        vectors_UR[begin : begin + len(of_shard)] = of_shard
        begin += len(of_shard)
    vectors_UR.flush()


def shard_vectors(directory: Path, extractor: Extractor, job: OfShard) -> np.ndarray:
    """The vectors of a shard, (utterances, R) float32."""
    number, speakers = job
    shard = Shard(directory, Places(directory)[number])
    histories: dict[str, History] = defaultdict(History)
    vectors_UR = np.zeros((len(speakers), extractor.size), dtype=np.float32)
    for place, speaker in enumerate(speakers):
        history = histories[speaker]
        if history.parts:
            vectors_UR[place] = extractor.vector(history.sums())
        feats_TF = shard.read(place)
        history.add(len(feats_TF), extractor.sums(feats_TF))
    return vectors_UR


class History:
    """What a speaker has said last: whole utterances, HISTORY_FRAMES of them or a little more."""

    def __init__(self) -> None:
        self.parts: deque[tuple[int, Sums]] = deque()
        self.num_frames = 0

    def add(self, num_frames: int, sums: Sums) -> None:
        """One utterance more; those that are then not needed are forgotten."""
        self.parts.append((num_frames, sums))
        self.num_frames += num_frames
        while self.num_frames - self.parts[0][0] >= HISTORY_FRAMES:
            self.num_frames -= self.parts.popleft()[0]

    def sums(self) -> Sums:
        """Of all that is remembered, at least one utterance."""
        return functools.reduce(Sums.__add__, (sums for _, sums in self.parts))


def open_vectors(directory: Path, num_utterances: int) -> np.ndarray | None:
    """Those of a set, mapped; None where it has none. AsrtoolError where the file is broken or of another set."""
    path = Path(directory) / VECTORS
    if not path.exists():
        return None
    try:
        vectors_UR: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        if vectors_UR.ndim != 2 or len(vectors_UR) != num_utterances:
            raise ValueError(f"an array of shape {vectors_UR.shape}, expected {num_utterances} rows")
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise AsrtoolError(f"{path}: no readable speaker vectors: {error}", RERUN) from error
    return vectors_UR


def extractor_digest(features: Path) -> str:
    """The SHA-256 of the extractor of the sets in the folder `features`; empty where they have no vectors."""
    path = features / EXTRACTOR
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _spread(utterances: Sequence[Utterance], most: int) -> list[Utterance]:
    places = np.linspace(0, len(utterances) - 1, min(most, len(utterances))).round().astype(int)
    return [utterances[place] for place in places]


def _read(directory: Path, utterances: Sequence[Utterance]) -> Iterable[tuple[Utterance, np.ndarray]]:
    """The features of some, in storage order, as they are stored."""
    shards = Places(directory)
    for number, listed in itertools.groupby(utterances, lambda one: one.shard):
        shard = Shard(directory, shards[number])
        places = {name: place for place, name in enumerate(shard.ids)}
        for utterance in listed:
            yield utterance, shard.read(places[utterance.id])
