"""Batch plans and loading ahead."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asrtool.data.batches import LENGTH_JITTER, Lengths, load_ahead, one_ahead, pad_feats, plan_epoch, plan_eval
from asrtool.data.storage.index import Utterance
from asrtool.errors import AsrtoolError

MAX_FRAMES = 3000


def make_index(lengths: Sequence[int], shard_size: int = 20) -> list[Utterance]:
    return [
        Utterance(f"u{i}", "r", "A", 0.0, num_frames / 100, "r-A", "x", i // shard_size, num_frames)
        for i, num_frames in enumerate(lengths)
    ]


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


@given(lengths_lists, st.integers(1, 30), st.integers(1, 4), st.integers(0, 1000))
@example(np.random.default_rng(1).integers(980, 1020, 2000).tolist(), 100, 8, 0)  # the longest of a batch may be first
@example(np.random.default_rng(1).integers(0, 3, 400).tolist(), 50, 8, 0)  # many are equal
def test_the_batches_of_an_epoch_are_those_that_trainings_have_always_had(
    lengths: list[int], shard_size: int, window_shards: int, epoch: int
) -> None:
    """The bits of a training depend on it."""
    plan = list(plan_epoch(Lengths.of(make_index(lengths, shard_size)), MAX_FRAMES, 1, epoch, window_shards))
    found = [(list(batch.indices), batch.window) for batch in plan]
    assert found == written_out(lengths, shard_size, window_shards, epoch)


@given(lengths_lists, st.integers(1, 30), st.integers(1, 4000))
def test_a_batch_of_an_evaluation_is_as_large_as_it_can_be_and_a_long_utterance_alone(
    lengths: list[int], shard_size: int, max_frames: int
) -> None:
    batches = list(plan_eval(Lengths.of(make_index(lengths, shard_size)), max_frames))
    assert sorted(i for batch in batches for i in batch.indices) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch.indices) * max(lengths[i] for i in batch.indices) <= max_frames or len(batch.indices) == 1
    for batch, behind in itertools.pairwise(batches):
        of_both = [lengths[i] for i in (*batch.indices, behind.indices[0])]
        assert batch.window != behind.window or of_both == sorted(of_both)
        if batch.window == behind.window:  # without a frame it counts as one
            assert len(of_both) * max(of_both[-1], 1) > max_frames


def test_an_utterance_longer_than_a_batch_is_named() -> None:
    index = make_index([100, MAX_FRAMES + 1, 200])
    with pytest.raises(AsrtoolError, match=r"utterance u1 has 3001 frames, a batch holds 3000; raise train\.batch_s"):
        list(plan_epoch(Lengths.of(index), MAX_FRAMES, 1, 0))


def loading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


def test_features_are_padded_with_zeros() -> None:
    feats_NTF, lens_N = pad_feats([np.full((num, 3), value, np.float32) for num, value in [(3, 3), (4, 1)]])
    assert (lens_N.tolist(), lens_N.dtype) == ([3, 4], np.int64)
    expected_NTF = np.zeros((2, 4, 3), dtype=np.float32)
    expected_NTF[0, :3] = 3
    expected_NTF[1] = 1
    np.testing.assert_array_equal(feats_NTF, expected_NTF)
    assert feats_NTF.dtype == np.float32


@pytest.mark.parametrize("prefetch", [1, 3, 100])
def test_items_arrive_in_order(prefetch: int) -> None:
    assert list(load_ahead(str, range(10), prefetch)) == [str(i) for i in range(10)]


def test_no_more_is_loaded_ahead_than_asked_for_and_stopping_early_ends_the_thread() -> None:
    loaded: list[int] = []
    items = load_ahead(loaded.append, range(10), prefetch=3)
    next(items)
    assert loading_threads()
    items.close()
    assert len(loaded) <= 1 + 3
    assert not loading_threads()


def test_an_error_while_loading_reaches_the_consumer() -> None:
    def load(number: int) -> int:
        if number == 4:
            raise AsrtoolError(f"utterance {number} cannot be read")
        return number

    with pytest.raises(AsrtoolError, match="utterance 4 cannot be read"):
        list(load_ahead(load, range(10), 4))
    assert not loading_threads()


def test_one_item_is_made_ahead_and_no_more_by_a_thread_that_ends_with_the_iterator() -> None:
    made: list[int] = []
    is_made = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for item in range(5):
            assert threading.current_thread() is not threading.main_thread()
            made.append(item)
            is_made.release()
            yield item

    ahead = one_ahead(items())
    for item in range(3):
        assert next(ahead) == item
        for _ in range(2 if item == 0 else 1):
            assert is_made.acquire(timeout=60)  # the next one too, though nobody has asked for it
        assert made == list(range(item + 2))
    ahead.close()
    assert made == [0, 1, 2, 3]
    assert list(one_ahead(items())) == [0, 1, 2, 3, 4]
