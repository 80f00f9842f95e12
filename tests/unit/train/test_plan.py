"""The batches of a training against brute force: a list of all of them."""

from __future__ import annotations

import random as random_module
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from asrtool.train.batch import TrainingBatch
from asrtool.train.plan import NUM_KEPT, Place, Plan
from asrtool.train.source import BatchSource, Planned, Size


class Lengths(BatchSource):
    """Epochs of so many batches each; a batch is its epoch and position."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def size(self) -> Size:
        raise AssertionError("a plan needs no size")

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        """`state` has to be that of the batch before."""
        count = sum(self.lengths[:epoch]) + batch
        assert state == {"count": count}
        for position in range(batch, self.lengths[epoch]):
            count += 1
            yield Planned((epoch, position), samples(epoch, position), 7 * epoch + position, {"count": count})

    def read(self, batch: Planned) -> TrainingBatch:
        raise AssertionError("a plan reads nothing")


def samples(epoch: int, position: int) -> int:
    return 1 + (3 * epoch + 5 * position) % 11


class BruteForce:
    """All batches behind `begin`, listed."""

    def __init__(self, lengths: list[int], size: int, epoch: int, batch: int) -> None:
        self.lengths = lengths
        self.all = [(here, position) for here, length in enumerate(lengths) for position in range(length)]
        self.rounds: list[tuple[int, range]] = []
        for here in range(epoch, len(lengths)):
            first = batch if here == epoch else 0
            starts = range(first, lengths[here], size)
            self.rounds += [(here, range(start, min(start + size, lengths[here]))) for start in starts]

    def place(self, epoch: int, position: int) -> Place:
        before = [batch for batch in self.all if batch < (epoch, position)]
        num_samples = sum(samples(*batch) for batch in before)
        return Place(epoch, position, len(before), num_samples, {"count": len(before)})

    def epoch_of(self, number: int) -> int:
        """Behind the last round, that behind the last epoch."""
        return self.rounds[number][0] if number < len(self.rounds) else len(self.lengths)


@given(
    lengths=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    size=st.integers(1, 4),
    begin=st.tuples(st.integers(0, 5), st.integers(0, 7)),
    random=st.randoms(use_true_random=False),
)
def test_a_plan_is_that_of_brute_force_in_whatever_order_learners_ask(
    lengths: list[int], size: int, begin: tuple[int, int], random: random_module.Random
) -> None:
    """A learner may be ahead, and others behind it by as many epochs as a plan keeps."""
    epoch = begin[0] % len(lengths)
    batch = min(begin[1], lengths[epoch])  # behind the last one where the checkpoint was at the end of an epoch
    expected = BruteForce(lengths, size, epoch, batch)
    plan = Plan(Lengths(lengths), len(lengths), size, expected.place(epoch, batch))
    num_rounds, newest = len(expected.rounds), epoch
    numbers = [min(max(i // 3 + random.randint(-4, 4), 0), num_rounds + 1) for i in range(3 * num_rounds + 3)]
    for number in numbers:
        newest = max(newest, here := expected.epoch_of(number))
        if here <= newest - NUM_KEPT:
            continue
        if random.random() < 0.3:  # a checkpoint before it is the first that is asked for
            check_place_of_round(plan, expected, number)
        check_round(plan, expected, number)
        check_place_of_round(plan, expected, number)
        if random.random() < 0.3:
            newest = max(newest, check_borders(plan, expected, newest, epoch, random))
    for number in (num_rounds, num_rounds + 5):
        assert plan.batches(number) is None
    assert plan.end == expected.place(len(lengths), 0)


def check_round(plan: Plan, expected: BruteForce, number: int) -> None:
    if number >= len(expected.rounds):
        assert plan.batches(number) is None
        return
    epoch, positions = expected.rounds[number]
    assert plan.batches(number) == (epoch, positions)
    for position in (*positions, positions.stop):
        assert plan.place(epoch, position) == expected.place(epoch, position)
    assert [plan.batch(epoch, position).content for position in positions] == [(epoch, i) for i in positions]
    assert plan.normaliser(epoch, positions) == sum(7 * epoch + position for position in positions)


def check_place_of_round(plan: Plan, expected: BruteForce, number: int) -> None:
    found = plan.place_of_round(number)
    if number >= len(expected.rounds):
        assert found is None
    else:
        epoch, positions = expected.rounds[number]
        assert found == expected.place(epoch, positions.start)


def check_borders(plan: Plan, expected: BruteForce, newest: int, first: int, random: random_module.Random) -> int:
    """Of those that are kept, and perhaps of one that nobody has come to; the newest epoch that is known then."""
    last = min(newest + random.randint(0, 1), len(expected.lengths))
    begin = max(last - NUM_KEPT + 1, first + 1)
    assert plan.borders(begin, last) == [expected.place(epoch, 0) for epoch in range(begin, last + 1)]
    if begin <= last < len(expected.lengths):
        assert plan.end_of(last) == expected.place(last, expected.lengths[last])
    return last if begin <= last else newest
