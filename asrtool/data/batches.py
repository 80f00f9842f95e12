"""Batches of utterances of like length: the plan of an epoch, and loading ahead.

A plan is a pure function of index, seed and epoch, so a resumed training finds batch 4711 of epoch 3 again, and
learners agree on the plan without exchanging it.

Letters in names: N utterances of a batch, T frames, F filterbank bins.
"""

from __future__ import annotations

import functools
import itertools
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar, cast

import numpy as np

from asrtool.data.storage.index import WINDOW_SHARDS, Utterance
from asrtool.errors import AsrtoolError

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")
LENGTH_JITTER = 0.02  # lengths closer than this fraction count as equal, so that batches differ between epochs


@dataclass(frozen=True)
class Lengths:
    """Lengths and shards of utterances in storage order, for a plan."""

    num_frames: np.ndarray  # of each utterance
    first: np.ndarray  # position of the first utterance of each shard
    name: Callable[[int], str] = str  # position -> name of an utterance

    @classmethod
    def of(cls, index: Sequence[Utterance]) -> Lengths:
        """Build from a list of utterances."""
        frames = np.array([utterance.num_frames for utterance in index], dtype=np.int64)
        _, first = np.unique([utterance.shard for utterance in index], return_index=True)
        return cls(frames, first, lambda i: index[i].id)


@dataclass(frozen=True, slots=True)
class Batch:
    """Utterances computed together, as index positions."""

    indices: Sequence[int]
    window: int = 0  # number of the window of shards with its utterances


def plan_epoch(
    lengths: Lengths,
    max_frames_per_batch: int,
    seed: int,
    epoch: int,
    windows: Iterable[np.ndarray] | None = None,
) -> Iterator[Batch]:
    """Yield batches of all utterances, or of `windows`, with padding in the limit.

    Shards are shuffled and taken WINDOW_SHARDS at a time; the utterances of such a window are sorted by length
    (give or take LENGTH_JITTER), cut into batches, and the batches shuffled. So reading stays sequential, padding
    small, and the order random. Raises AsrtoolError for an utterance longer than a batch.
    """
    frames = lengths.num_frames
    check_longest(lengths, max_frames_per_batch)
    random = np.random.default_rng((seed, epoch))
    windows = plan_windows(lengths, random) if windows is None else windows
    for window, members in enumerate(windows):
        jitter = random.uniform(1 - LENGTH_JITTER, 1 + LENGTH_JITTER, len(members))
        order = members[np.argsort(frames[members] * jitter, kind="stable")]
        packed = _pack(order, frames, max_frames_per_batch)
        for i in random.permutation(len(packed)).tolist():
            yield Batch(packed[i], window)


def plan_windows(lengths: Lengths, random: np.random.Generator | None = None) -> Iterator[np.ndarray]:
    """Yield index positions by window; shards in storage order, or shuffled."""
    num_shards = len(lengths.first)
    ends = [*lengths.first[1:].tolist(), len(lengths.num_frames)]
    order = random.permutation(num_shards) if random else np.arange(num_shards)
    for begin in range(0, num_shards, WINDOW_SHARDS):
        yield np.concatenate([np.arange(lengths.first[i], ends[i]) for i in order[begin : begin + WINDOW_SHARDS]])


def check_longest(lengths: Lengths, max_frames_per_batch: int) -> None:
    """Raise AsrtoolError naming the longest utterance if it does not fit a batch."""
    frames = lengths.num_frames
    longest = int(frames.argmax())
    if frames[longest] > max_frames_per_batch:
        raise AsrtoolError(
            f"utterance {lengths.name(longest)} has {frames[longest]} frames, a batch holds {max_frames_per_batch}",
            "raise train.batch_s, or distributed.global_batch_s where that is set, or lower data.max_duration_s",
        )


def plan_eval(lengths: Lengths, max_frames_per_batch: int) -> Iterator[Batch]:
    """Yield batches of all utterances, sorted by length in each window of shards.

    The order is always the same. An utterance longer than `max_frames_per_batch` is a batch of its own, since a test
    set cannot choose.
    """
    frames = lengths.num_frames
    for window, members in enumerate(plan_windows(lengths)):
        for indices in _pack(members[np.argsort(frames[members], kind="stable")], frames, max_frames_per_batch):
            yield Batch(indices, window)


def load_ahead(
    load: Callable[[Item], Loaded], items: Iterable[Item], prefetch: int, num_threads: int = 1
) -> Generator[Loaded, None, None]:
    """Yield `load` of each item, up to `prefetch` ahead, in threads.

    Items are taken in the caller's thread. Errors in a thread are raised here. Closing the iterator early ends the
    threads.
    """
    pending: deque[Future[Loaded]] = deque()
    executor = ThreadPoolExecutor(max_workers=num_threads, thread_name_prefix="batches")
    try:
        todo = iter(items)
        pending.extend(executor.submit(load, item) for item in islice(todo, prefetch))
        while pending:
            loaded = pending.popleft().result()
            pending.extend(executor.submit(load, item) for item in islice(todo, 1))
            yield loaded
    finally:
        executor.shutdown(cancel_futures=True)


def one_ahead(items: Iterable[Item]) -> Generator[Item, None, None]:
    """Yield `items`, each made in a thread while the caller uses the one before.

    Errors in the thread are raised here. Closing the iterator early ends the thread.
    """
    todo, end = iter(items), object()
    with closing(load_ahead(lambda _: next(todo, end), itertools.repeat(None), 1)) as made:
        yield from (cast(Item, item) for item in iter(made.__next__, end))


zeros_NTF = functools.partial(np.zeros, dtype=np.float32)


def pad_feats(
    feats: Sequence[np.ndarray], zeros: Callable[[tuple[int, int, int]], np.ndarray] = zeros_NTF
) -> tuple[np.ndarray, np.ndarray]:
    """Return the features (N, T, F) of N utterances (T, F), and their lengths (N,).

    `zeros` allocates the float32 array.
    """
    feat_lens_N = np.array([len(feats_TF) for feats_TF in feats], dtype=np.int64)
    feats_NTF = zeros((len(feats), int(feat_lens_N.max()), feats[0].shape[1]))
    for n, feats_TF in enumerate(feats):
        feats_NTF[n, : len(feats_TF)] = feats_TF
    return feats_NTF, feat_lens_N


def _pack(order: np.ndarray, frames: np.ndarray, max_frames_per_batch: int) -> list[array[int]]:
    """Cut `order` into the longest runs that fit a batch with their padding.

    An utterance without frames counts as one frame; a too long utterance is alone. Runs are arrays: an epoch of seven
    million utterances takes 28 MB, tuples of integers ten times that.
    """
    begins: list[int] = []
    longest = 0
    for place, num_frames in enumerate(np.maximum(frames[order], 1).tolist()):
        longest = max(longest, num_frames)
        if not begins or (place - begins[-1] + 1) * longest > max_frames_per_batch:
            begins.append(place)
            longest = num_frames
    numbers = array("I", order.astype(np.uint32).tobytes())
    return [numbers[begin:end] for begin, end in itertools.pairwise([*begins, len(order)])]
