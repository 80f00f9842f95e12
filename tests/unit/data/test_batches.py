"""Batch plans and loading ahead."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrtool.data.batches import (
    LENGTH_JITTER,
    Batch,
    Lengths,
    LoadedBatch,
    load_batches,
    stable_order,
)
from asrtool.data.batches import plan_epoch as plan_lengths
from asrtool.data.batches import plan_eval as plan_eval_lengths
from asrtool.data.storage.index import Utterance
from asrtool.data.storage.reader import FeatureReader
from asrtool.errors import AsrtoolError

MAX_FRAMES = 3000


def make_index(lengths: Sequence[int], shard_size: int = 20) -> list[Utterance]:
    return [
        Utterance(f"u{i}", "r", "A", 0.0, num_frames / 100, "r-A", "x", i // shard_size, num_frames)
        for i, num_frames in enumerate(lengths)
    ]


def random_index(num: int, shard_size: int = 20) -> list[Utterance]:
    lengths = np.random.default_rng(3).integers(50, 1200, num)
    return make_index([int(length) for length in lengths], shard_size)


def plan_epoch(index: list[Utterance], *args: int, **options: int) -> list[Batch]:
    return list(plan_lengths(Lengths.of(index), *args, **options))


def plan_eval(index: list[Utterance], max_frames: int) -> list[Batch]:
    return list(plan_eval_lengths(Lengths.of(index), max_frames))


class Features:
    """Stands in for a FeatureReader: utterance i is all i + 1; counts what was read."""

    num_bins = 3

    def __init__(self, index: list[Utterance], broken: int = -1) -> None:
        self.index = index
        self.broken = broken
        self.num_read = 0

    def read(self, i: int) -> np.ndarray:
        if i == self.broken:
            raise AsrtoolError(f"utterance {i} cannot be read")
        self.num_read += 1
        return np.full((self.index[i].num_frames, self.num_bins), i + 1, dtype=np.float32)

    def read_several(self, positions: Sequence[int]) -> list[np.ndarray]:
        return list(map(self.read, positions))


def load(features: Features, batches: Sequence[Batch], first: int = 0, prefetch: int = 4) -> Iterator[LoadedBatch]:
    return load_batches(cast(FeatureReader, features), batches[first:], prefetch)


lengths_lists = st.lists(st.integers(0, MAX_FRAMES), min_size=1, max_size=120)


def written_out(lengths: Sequence[int], shard_size: int, window_shards: int, epoch: int) -> list[tuple[list[int], int]]:
    """The batches of an epoch and their windows, one utterance after the other."""
    random = np.random.default_rng((1, epoch))
    shards = [list(range(begin, min(begin + shard_size, len(lengths)))) for begin in range(0, len(lengths), shard_size)]
    order = random.permutation(len(shards)).tolist()
    found = []
    for window, begin in enumerate(range(0, len(order), window_shards)):
        members = [i for shard in order[begin : begin + window_shards] for i in shards[shard]]
        jitter = random.uniform(1 - LENGTH_JITTER, 1 + LENGTH_JITTER, len(members))
        batches: list[list[int]] = [[]]
        keys = [lengths[i] * x for i, x in zip(members, jitter, strict=True)]
        for _, i in sorted(zip(keys, members, strict=True), key=lambda pair: pair[0]):  # equal ones stay in order
            if (len(batches[-1]) + 1) * max(lengths[k] for k in [*batches[-1], i]) > MAX_FRAMES:
                batches.append([])
            batches[-1].append(i)
        found += [(batches[i], window) for i in random.permutation(len(batches))]
    return found


def planned(lengths: Sequence[int], shard_size: int, window_shards: int, epoch: int) -> list[tuple[list[int], int]]:
    batches = plan_epoch(make_index(lengths, shard_size), MAX_FRAMES, 1, epoch, window_shards)
    assert [batch.number for batch in batches] == list(range(len(batches)))
    return [(list(batch.indices), batch.window) for batch in batches]


@given(lengths_lists, st.integers(1, 30), st.integers(1, 4), st.integers(0, 1000))
def test_the_batches_of_an_epoch_are_those_that_trainings_have_always_had(
    lengths: list[int], shard_size: int, window_shards: int, epoch: int
) -> None:
    """The bits of a training depend on it."""
    plan = (lengths, shard_size, window_shards, epoch)
    assert planned(*plan) == written_out(*plan)


def test_so_they_are_where_the_longest_of_a_batch_is_its_first() -> None:
    lengths = np.random.default_rng(1).integers(980, 1020, 2000).tolist()
    assert planned(lengths, 100, 8, 0) == written_out(lengths, 100, 8, 0)


@given(lengths_lists, st.integers(1, 30), st.integers(1, 4000))
def test_evaluation_holds_every_utterance_once_and_a_long_one_alone(
    lengths: list[int], shard_size: int, max_frames: int
) -> None:
    index = make_index(lengths, shard_size)
    batches = plan_eval(index, max_frames)
    assert sorted(i for batch in batches for i in batch.indices) == list(range(len(index)))
    for batch in batches:
        padded = len(batch.indices) * max(lengths[i] for i in batch.indices)
        assert padded <= max_frames or len(batch.indices) == 1


@given(lengths_lists, st.integers(1, 4000))
def test_a_batch_of_an_evaluation_is_as_large_as_it_can_be(lengths: list[int], max_frames: int) -> None:
    batches = [list(batch.indices) for batch in plan_eval(make_index(lengths, len(lengths)), max_frames)]
    in_order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    assert [i for batch in batches for i in batch] == in_order
    for batch, behind in itertools.pairwise(batches):
        assert (len(batch) + 1) * max(lengths[behind[0]], 1) > max_frames  # without a frame it counts as one


@given(st.integers(1, 300), st.integers(1, 300))
def test_equal_keys_stay_in_order(num: int, num_kinds: int) -> None:
    keys = np.random.default_rng(num).integers(0, num_kinds, num).astype(float)
    assert stable_order(keys).tolist() == sorted(range(num), key=lambda i: keys[i])


def test_an_utterance_longer_than_a_batch_is_named() -> None:
    index = make_index([100, MAX_FRAMES + 1, 200])
    with pytest.raises(AsrtoolError, match=r"utterance u1 has 3001 frames, a batch holds 3000; raise train\.batch_s"):
        plan_epoch(index, MAX_FRAMES, 1, 0)


def padding_fraction(batches: Sequence[Batch], index: Sequence[Utterance]) -> float:
    frames = [[index[i].num_frames for i in batch.indices] for batch in batches]
    return 1 - sum(map(sum, frames)) / sum(len(lengths) * max(lengths) for lengths in frames)


def test_batches_of_like_length_pad_little() -> None:
    index = random_index(2000, shard_size=500)
    batches = plan_epoch(index, 12000, 1, 0)
    in_storage_order = [Batch(n, tuple(range(n, min(n + 16, 2000)))) for n in range(0, 2000, 16)]
    assert padding_fraction(batches, index) < 0.08
    assert padding_fraction(in_storage_order, index) > 0.4


def test_a_loaded_batch_is_padded_with_zeros() -> None:
    features = Features(make_index([4, 2, 3]))
    (batch,) = load(features, [Batch(7, (2, 0))])
    assert (batch.number, batch.indices) == (7, (2, 0))
    assert [utterance.id for utterance in batch.utterances] == ["u2", "u0"]
    assert batch.feat_lens_N.tolist() == [3, 4]
    assert batch.feat_lens_N.dtype == np.int64
    expected_NTF = np.zeros((2, 4, 3), dtype=np.float32)
    expected_NTF[0, :3] = 3
    expected_NTF[1] = 1
    np.testing.assert_array_equal(batch.feats_NTF, expected_NTF)
    assert batch.feats_NTF.dtype == np.float32


@pytest.mark.parametrize("prefetch", [1, 3, 100])
@pytest.mark.parametrize("first", [0, 1, 9, 10])
def test_batches_arrive_in_order_from_the_first_asked_for(first: int, prefetch: int) -> None:
    index = random_index(10)
    batches = [Batch(number, (number,)) for number in range(10)]
    assert [batch.number for batch in load(Features(index), batches, first, prefetch)] == list(range(first, 10))


def test_no_more_is_loaded_ahead_than_asked_for() -> None:
    features = Features(random_index(100))
    batches = load(features, [Batch(n, (n,)) for n in range(100)], prefetch=3)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert features.num_read <= 1 + 3


def test_an_error_while_loading_reaches_the_consumer() -> None:
    batches = load(Features(random_index(10), broken=4), [Batch(n, (n,)) for n in range(10)])
    with pytest.raises(AsrtoolError, match="utterance 4 cannot be read"):
        list(batches)
    assert not _loading_threads()


def test_stopping_early_ends_the_thread() -> None:
    batches = load(Features(random_index(50)), [Batch(n, (n,)) for n in range(50)])
    next(batches)
    assert _loading_threads()
    batches.close()  # type: ignore[attr-defined]
    assert not _loading_threads()


def _loading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("batches")]
