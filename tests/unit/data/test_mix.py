"""How many utterances of each corpus an epoch has, and which: shares, walks through a corpus, windows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrtool.data.batches import LENGTH_JITTER, Lengths, plan_epoch
from asrtool.data.mix import STREAM, Mixture, apportion, fractions_of
from asrtool.errors import AsrtoolError
from asrtool.settings.config import check_conflicts
from asrtool.settings.data import Mix
from asrtool.settings.toml_files import load_config

FORMS = "expected utterances, hours, temperature:2, or a weight of 0 or more for each corpus, as NAME:0.7,OTHER:0.3"
NUM = {"swbd": 800, "wide": 50}
FRAMES = {"swbd": 160_000, "wide": 40_000}


@pytest.mark.parametrize(
    ("text", "mix"),
    [
        ("utterances", Mix()),
        ("hours", Mix("hours")),
        ("temperature:2.5", Mix("temperature", 2.5)),
        ("swbd:7, fisher:0", Mix("given", weights={"swbd": 7, "fisher": 0})),
    ],
)
def test_a_value_says_the_rule(text: str, mix: Mix) -> None:
    assert load_config([], [f"data.mix={text}"]).data.mixing == mix
    assert mix.is_plain == (text == "utterances")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("equal", FORMS),
        ("", FORMS),
        ("temperature:hot", FORMS),
        ("temperature:nan", FORMS),
        ("swbd:1,:2", FORMS),
        ("swbd:1,swbd:2", FORMS),
        ("swbd:0,fisher:0", "expected a weight above 0"),
        ("temperature:0", "expected a number above 0"),
    ],
)
def test_a_value_that_says_no_rule_is_refused(text: str, expected: str) -> None:
    with pytest.raises(AsrtoolError) as error:
        load_config([], [f"data.mix={text}"])
    assert f"data.mix is {text!r}, {expected}" in error.value.what
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ("swbd:1,fischer:1", "data.mix weighs fischer, not trained on; expected a weight for each of fisher, swbd"),
        ("swbd:1", "data.mix has no weight for fisher; expected a weight for each of fisher, swbd"),
    ],
)
def test_weights_of_other_corpora_than_those_of_training_are_refused_before_anything_runs(
    mix: str, message: str
) -> None:
    with pytest.raises(AsrtoolError) as error:
        check_conflicts(load_config([], ["data.train=swbd,fisher", f"data.mix={mix}"]))
    assert error.value.what == message
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


def written_out(
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
            random = np.random.default_rng((seed, number, corpus, STREAM))
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
        jitter = random.uniform(1 - LENGTH_JITTER, 1 + LENGTH_JITTER, len(members))
        batches: list[list[int]] = [[]]
        for place in np.argsort(frames[members] * jitter, kind="stable"):
            i = members[place]
            if (len(batches[-1]) + 1) * max(frames[k] for k in [*batches[-1], i]) > 3000:
                batches.append([])
            batches[-1].append(i)
        found += [(batches[i], window) for i in random.permutation(len(batches))]
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
        plan = plan_epoch(Lengths(frames, first), 3000, 5, epoch, windows=mixture.windows(epoch, 2))
        expected = written_out(text, of_each, frames, first, 5, epoch, 2)
        assert [(list(batch.indices), batch.window) for batch in plan] == expected
