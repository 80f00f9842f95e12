"""Batches of utterances of like length: the plan of an epoch, and loading it ahead of training.

A plan is a pure function of the index, the seed and the epoch, so a resumed training finds batch 4711 of epoch 3 again,
and several learners agree on the plan without exchanging it.

Letters in names: N utterances of a batch, T frames, F filterbank bins.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np

from asrtool.corpus.index import WINDOW_SHARDS, Utterance
from asrtool.corpus.shard import FeatureReader
from asrtool.errors import AsrtoolError

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")
LENGTH_JITTER = 0.02  # lengths closer than this fraction count as equal, so that batches differ between epochs


@dataclass(frozen=True)
class Batch:
    """Utterances trained together, as positions in the index; `number` counts the batches of an epoch from 0."""

    number: int
    indices: tuple[int, ...]
    window: int = 0  # of shards, all of which its utterances are from


@dataclass
class LoadedBatch:
    """A batch with its features, normalised and zero-padded to the longest utterance."""

    number: int
    indices: tuple[int, ...]
    utterances: tuple[Utterance, ...]
    feats_NTF: np.ndarray  # float32
    feat_lens_N: np.ndarray  # int64, frames


def plan_epoch(
    index: Sequence[Utterance],
    max_frames_per_batch: int,
    seed: int,
    epoch: int,
    window_shards: int = WINDOW_SHARDS,
) -> list[Batch]:
    """Every utterance once, in batches of at most `max_frames_per_batch` frames, padding included.

    Shards are shuffled and taken `window_shards` at a time; the utterances of such a window are sorted by length
    (give or take LENGTH_JITTER), cut into batches, and the batches shuffled. So reading stays sequential, padding
    small, and the order random. Raises AsrtoolError for an utterance longer than a batch.
    """
    frames = _num_frames(index)
    longest = int(frames.argmax())
    if frames[longest] > max_frames_per_batch:
        raise AsrtoolError(
            f"utterance {index[longest].id} has {frames[longest]} frames, a batch holds {max_frames_per_batch}",
            "raise train.batch_s, or distributed.global_batch_s where that is set, or lower data.max_duration_s",
        )
    random = np.random.default_rng((seed, epoch))
    windows: list[list[list[int]]] = []
    for members in _windows(index, window_shards, random):
        jitter = random.uniform(1 - LENGTH_JITTER, 1 + LENGTH_JITTER, len(members))
        packed = _pack(members[np.argsort(frames[members] * jitter, kind="stable")], frames, max_frames_per_batch)
        windows.append([packed[i] for i in random.permutation(len(packed))])
    return _numbered(windows)


def plan_eval(index: Sequence[Utterance], max_frames_per_batch: int) -> list[Batch]:
    """Every utterance once, sorted by length within each window of shards; always the same.

    An utterance longer than `max_frames_per_batch` is a batch of its own: a test set cannot choose.
    """
    frames = _num_frames(index)
    windows = _windows(index, WINDOW_SHARDS)
    return _numbered(_pack(of[np.argsort(frames[of], kind="stable")], frames, max_frames_per_batch) for of in windows)


def load_batches(reader: FeatureReader, batches: Iterable[Batch], prefetch: int = 4) -> Iterator[LoadedBatch]:
    """Load `batches` of the utterances of `reader`, up to `prefetch` ahead; as load_ahead."""
    return load_ahead(functools.partial(load_batch, reader), batches, prefetch)


def load_ahead(load: Callable[[Item], Loaded], items: Iterable[Item], prefetch: int) -> Generator[Loaded, None, None]:
    """`load` of each of `items`, up to `prefetch` ahead, in a thread; they are taken in the caller's thread.

    What goes wrong in the thread is raised here. Closing the iterator early ends the thread.
    """
    pending: deque[Future[Loaded]] = deque()
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
    try:
        todo = iter(items)
        pending.extend(executor.submit(load, item) for item in islice(todo, prefetch))
        while pending:
            loaded = pending.popleft().result()
            pending.extend(executor.submit(load, item) for item in islice(todo, 1))
            yield loaded
    finally:
        executor.shutdown(cancel_futures=True)


def load_batch(reader: FeatureReader, batch: Batch) -> LoadedBatch:
    """One batch, with its features."""
    feats = [reader.read(i) for i in batch.indices]
    feat_lens_N = np.array([len(feats_TF) for feats_TF in feats], dtype=np.int64)
    feats_NTF = np.zeros((len(feats), feat_lens_N.max(), reader.num_bins), dtype=np.float32)
    for n, feats_TF in enumerate(feats):
        feats_NTF[n, : len(feats_TF)] = feats_TF
    utterances = tuple(reader.index[i] for i in batch.indices)
    return LoadedBatch(batch.number, batch.indices, utterances, feats_NTF, feat_lens_N)


def _num_frames(index: Sequence[Utterance]) -> np.ndarray:
    assert index, "no utterances to make batches of"
    return np.array([utterance.num_frames for utterance in index], dtype=np.int64)


def _windows(
    index: Sequence[Utterance], window_shards: int, random: np.random.Generator | None = None
) -> Iterator[np.ndarray]:
    """Positions in the index, window by window; shards in storage order, or shuffled by `random`."""
    _, firsts = np.unique([utterance.shard for utterance in index], return_index=True)
    shards = np.split(np.arange(len(index)), firsts[1:])
    order = random.permutation(len(shards)) if random else np.arange(len(shards))
    for begin in range(0, len(order), window_shards):
        yield np.concatenate([shards[i] for i in order[begin : begin + window_shards]])


def _pack(order: np.ndarray, frames: np.ndarray, max_frames_per_batch: int) -> list[list[int]]:
    """Cut `order` into runs whose size times longest utterance is at most `max_frames_per_batch`."""
    batches: list[list[int]] = []
    longest = 0
    for i in order.tolist():
        longest = max(longest, int(frames[i]))
        if batches and (len(batches[-1]) + 1) * longest <= max_frames_per_batch:
            batches[-1].append(i)
        else:
            batches.append([i])
            longest = int(frames[i])
    return batches


def _numbered(windows: Iterable[Sequence[Sequence[int]]]) -> list[Batch]:
    batches = ((tuple(indices), window) for window, batches in enumerate(windows) for indices in batches)
    return [Batch(number, indices, window) for number, (indices, window) in enumerate(batches)]
