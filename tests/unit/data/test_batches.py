"""Batch plans, loading ahead, and how many and which utterances of each corpus an epoch has."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asrtool.data import batches
from asrtool.data.batches import LENGTH_JITTER, Lengths, load_ahead, one_ahead, pad_feats, plan_epoch, plan_eval
from asrtool.data.mix import RNG_STREAM, Mixture, apportion, fractions_of
from asrtool.data.storage.index import Utterance
from asrtool.errors import AsrtoolError
from asrtool.settings.config import check_conflicts
from asrtool.settings.data import Mix
from asrtool.settings.toml_files import load_config

MAX_FRAMES = 3000


def make_index(lengths: Sequence[int], shard_size: int = 20) -> list[Utterance]:
    return [
        Utterance(f"u{i}", "r", "A", 0.0, num_frames / 100, "r-A", "x", i // shard_size, num_frames)
        for i, num_frames in enumerate(lengths)
    ]


lengths_lists = st.lists(st.integers(0, MAX_FRAMES), min_size=1, max_size=120)


def batches_of_window(members: list[int], lengths: Sequence[int], random: np.random.Generator) -> list[list[int]]:
    """The batches of a window, one utterance after the other."""
    jitter = random.uniform(1 - LENGTH_JITTER, 1 + LENGTH_JITTER, len(members))
    keys = [lengths[i] * x for i, x in zip(members, jitter, strict=True)]
    batches: list[list[int]] = [[]]
    for _, i in sorted(zip(keys, members, strict=True), key=lambda pair: pair[0]):  # equal ones stay in order
        if (len(batches[-1]) + 1) * max(lengths[k] for k in [*batches[-1], i]) > MAX_FRAMES:
            batches.append([])
        batches[-1].append(i)
    return [batches[i] for i in random.permutation(len(batches))]


def written_out(lengths: Sequence[int], shard_size: int, window_shards: int, epoch: int) -> list[tuple[list[int], int]]:
    """The batches of an epoch and their windows."""
    random = np.random.default_rng((1, epoch))
    shards = [list(range(begin, min(begin + shard_size, len(lengths)))) for begin in range(0, len(lengths), shard_size)]
    order = random.permutation(len(shards)).tolist()
    found = []
    for window, begin in enumerate(range(0, len(order), window_shards)):
        members = [i for shard in order[begin : begin + window_shards] for i in shards[shard]]
        found += [(batch, window) for batch in batches_of_window(members, lengths, random)]
    return found


@given(lengths_lists, st.integers(1, 30), st.integers(1, 4), st.integers(0, 1000))
@example(np.random.default_rng(1).integers(980, 1020, 2000).tolist(), 100, 8, 0)  # the longest of a batch may be first
@example(np.random.default_rng(1).integers(0, 3, 400).tolist(), 50, 8, 0)  # many are equal
def test_the_batches_of_an_epoch_are_those_that_trainings_have_always_had(
    lengths: list[int], shard_size: int, window_shards: int, epoch: int
) -> None:
    """The bits of a training depend on it."""
    with mock.patch.object(batches, "WINDOW_SHARDS", window_shards):
        plan = list(plan_epoch(Lengths.of(make_index(lengths, shard_size)), MAX_FRAMES, 1, epoch))
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


def test_no_more_is_loaded_ahead_than_asked_for_and_stopping_early_ends_the_thread() -> None:
    for prefetch in (1, 3, 100):
        assert list(load_ahead(str, range(10), prefetch)) == [str(i) for i in range(10)]
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


FORMS = "expected utterances, hours, temperature:2, or a weight of 0 or more for each corpus, as NAME:0.7,OTHER:0.3"
NUM = {"swbd": 800, "wide": 50}
FRAMES = {"swbd": 160_000, "wide": 40_000}


def test_a_value_says_the_rule_or_is_refused() -> None:
    for text, mix in (
        ("utterances", Mix()),
        ("hours", Mix("hours")),
        ("temperature:2.5", Mix("temperature", 2.5)),
        ("swbd:7, fisher:0", Mix("given", weights={"swbd": 7, "fisher": 0})),
    ):
        assert load_config([], [f"data.mix={text}"]).data.mixing == mix
        assert mix.is_plain == (text == "utterances")
    no_rules = dict.fromkeys(("equal", "", "temperature:hot", "temperature:nan", "swbd:1,:2", "swbd:1,swbd:2"), FORMS)
    above = {"swbd:0,fisher:0": "expected a weight above 0", "temperature:0": "expected a number above 0"}
    for text, expected in (no_rules | above).items():
        with pytest.raises(AsrtoolError) as error:
            load_config([], [f"data.mix={text}"])
        assert f"data.mix is {text!r}, {expected}" in error.value.what


def test_weights_of_other_corpora_than_those_of_training_are_refused_before_anything_runs() -> None:
    for mix, found in (("swbd:1,fischer:1", "weighs fischer, not trained on"), ("swbd:1", "has no weight for fisher")):
        with pytest.raises(AsrtoolError) as error:
            check_conflicts(load_config([], ["data.train=swbd,fisher", f"data.mix={mix}"]))
        assert error.value.what == f"data.mix {found}; expected a weight for each of fisher, swbd"
    check_conflicts(load_config([], ["data.train=swbd,fisher", "data.mix=swbd:1,fisher:2"]))


@pytest.mark.parametrize(
    ("text", "swbd"),
    [
        ("utterances", 800 / 850),
        ("hours", 0.8),
        ("temperature:2", 0.8),  # the roots of 800 and 50 are as 4 to 1
        ("temperature:4", 2 / 3),  # and the roots of these as 2 to 1
        ("temperature:0.0001", 1.0),
        ("swbd:3,wide:1", 0.75),
    ],
)
def test_a_corpus_has_the_fraction_of_its_rule(text: str, swbd: float) -> None:
    found = fractions_of(Mix.parse(text), NUM, FRAMES)
    assert found == pytest.approx({"swbd": swbd, "wide": 1 - swbd}, abs=1e-5)


@given(st.integers(0, 10_000), st.lists(st.floats(0, 1e6), min_size=1, max_size=6))
def test_numbers_add_up_and_those_of_the_largest_remainders_are_raised(total: int, weights: list[float]) -> None:
    weights[0] += 1e-3
    fractions = {str(i): weight / sum(weights) for i, weight in enumerate(weights)}
    numbers = apportion(total, fractions)
    assert sum(numbers.values()) == total
    quotas = {name: total * fraction for name, fraction in fractions.items()}
    excess = {name: numbers[name] - quotas[name] for name in numbers}
    assert all(-1 - 1e-6 < value < 1 + 1e-6 for value in excess.values())
    raised, left = ([value for value in excess.values() if (value > 0) == is_raised] for is_raised in (True, False))
    # The remainder of one that was raised is 1 - its excess, that of another -excess.
    assert not raised or min(1 - value for value in raised) >= max((-value for value in left), default=0) - 1e-6


def mixed_written_out(
    text: str, of_each: np.ndarray, frames: np.ndarray, first: np.ndarray, seed: int, epoch: int, num_windows: int
) -> list[tuple[list[int], int]]:
    """The batches of a mixed epoch and their windows: all passes of each corpus, one behind the other, and cut."""
    sizes = np.bincount(of_each, minlength=3)
    sums = np.bincount(of_each, frames, minlength=3)
    named = [dict(zip("abc", values.tolist(), strict=True)) for values in (sizes, sums)]
    numbers = [*apportion(len(of_each), fractions_of(Mix.parse(text), *named)).values()]
    shards = [set(range(begin, end)) for begin, end in itertools.pairwise([*first.tolist(), len(of_each)])]
    walks = []
    for corpus in range(3):
        walk: list[int] = []
        for number in range((epoch + 1) * len(of_each) // sizes[corpus] + 1):
            random = np.random.default_rng((seed, number, corpus, RNG_STREAM))
            parts = [[i for i in sorted(shard) if of_each[i] == corpus] for shard in shards]
            parts = [part for part in parts if part]
            for place in random.permutation(len(parts)):
                walk += [parts[place][i] for i in random.permutation(len(parts[place]))]
        walks.append(walk)
    random, found = np.random.default_rng((seed, epoch)), []
    for window in range(num_windows):
        members: list[int] = []
        for walk, num in zip(walks, numbers, strict=True):
            members += walk[epoch * num + num * window // num_windows : epoch * num + num * (window + 1) // num_windows]
        found += [(batch, window) for batch in batches_of_window(members, frames.tolist(), random)]
    return found


@pytest.mark.parametrize("text", ["hours", "temperature:2", "a:1,b:1,c:1", "a:5,b:0,c:0.3"])
@pytest.mark.parametrize("contiguous", [True, False])
def test_a_mixed_plan_is_that_of_passes_written_out(text: str, contiguous: bool) -> None:
    """The bits of a training depend on it."""
    random = np.random.default_rng(3)
    of_each = random.choice(3, 300, p=[0.8, 0.1, 0.1]).astype(np.uint16)
    of_each = np.sort(of_each) if contiguous else of_each
    frames, first = random.integers(50, 1200, 300).astype(np.uint32), np.arange(0, 300, 20)
    mixture = Mixture(Mix.parse(text), ["a", "b", "c"], of_each, frames, first, 5)
    for epoch in (0, 3):
        plan = plan_epoch(Lengths(frames, first), MAX_FRAMES, 5, epoch, windows=mixture.windows(epoch, 2))
        expected = mixed_written_out(text, of_each, frames, first, 5, epoch, 2)
        assert [(list(batch.indices), batch.window) for batch in plan] == expected
