"""The batches of a training, and its ledger of those that are trained, against brute force: a list of all of them."""

from __future__ import annotations

import dataclasses
import random as random_module
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrtool.distributed.work.work_queue import BatchNumber, Round
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.plan import Place, Plan
from asrtool.train.batches.source import BatchSource, Planned, Size
from asrtool.train.checkpoints.checkpoint import Origin, Span, State
from asrtool.train.ledger import Ledger, add_to_spans, merge_spans


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


def test_windows_are_those_of_the_source_and_of_batches_left_from_before() -> None:
    """Windows of three batches in each epoch, of which another learner may claim any."""

    class Windows(Lengths):
        def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
            for position, planned in enumerate(super().plan(epoch, batch, state), batch):
                yield dataclasses.replace(planned, window=position // 3)

    left = [(0, 4, 5), (1, 0, 2), (1, 3, 5)]
    state = State(8, 1, 5, left, [Origin(0, 0, 0, {"count": 0}), Origin(1, 0, 6, {"count": 6})])
    plan = Plan(Windows([6, 7, 4]), 3, 1, state)
    assert plan.windows(1) == [range(1), range(1, 3), range(3, 6), range(6, 7)]
    assert plan.batches(1, plan.windows(1)[2]) == ((1, 3), (1, 4), (1, 5))
    assert plan.windows(2) == [range(3), range(3, 4)]
    assert Plan(Lengths([6]), 1, 1, State(source={"count": 0})).windows(0) == []

    other = Plan(Windows([6]), 1, 1, State(source={"count": 0}))
    (batch,) = other.batches(0, [5])
    assert other.planned(0, batch).content == (0, 5)


class BruteForce:
    """All batches behind `begin`, listed, behind those that are `left` from before."""

    def __init__(self, lengths: list[int], size: int, begin: BatchNumber, left: set[BatchNumber]) -> None:
        self.lengths = lengths
        self.begin = begin
        self.left = sorted(left)
        self.all = [BatchNumber(epoch, position) for epoch, length in enumerate(lengths) for position in range(length)]
        self.orders = {epoch: [one for one in self.all if one.epoch == epoch] for epoch in range(len(lengths) + 1)}
        self.orders[begin.epoch] = self.left + [one for one in self.orders[begin.epoch] if one >= begin]
        self.rounds: list[Round] = []
        for epoch in range(begin.epoch, len(lengths) + 1):
            slots = range(self.first(epoch), self.first(epoch) + len(self.orders[epoch]))
            self.rounds += [Round(epoch, slots[i : i + size]) for i in range(0, len(slots), size)]

    def first(self, epoch: int) -> int:
        """The first slot."""
        return self.begin.position - len(self.left) if epoch == self.begin.epoch else 0

    def batch(self, epoch: int, slot: int) -> BatchNumber:
        return self.orders[epoch][slot - self.first(epoch)]

    def place(self, epoch: int, slot: int) -> Place:
        trained = [one for one in self.all if one < self.begin and one not in self.left]
        for other in range(self.begin.epoch, epoch):
            trained += self.orders[other]
        trained += self.orders[epoch][: slot - self.first(epoch)] if epoch < len(self.orders) else []
        batch = max(slot, self.begin.position) if epoch == self.begin.epoch else slot
        count = sum(one < (epoch, batch) for one in self.all)
        return Place(epoch, batch, len(trained), sum(samples(*one) for one in trained), {"count": count})

    def span(self, one: BatchNumber) -> tuple[int, int, int]:
        return one.epoch, one.position, one.position + 1

    def plan(self, size: int) -> Plan:
        origins = []
        for epoch in {one.epoch for one in self.left}:
            number = sum(self.lengths[:epoch])
            origins.append(Origin(epoch, 0, number, {"count": number}))
        begin = self.place(self.begin.epoch, self.first(self.begin.epoch))
        spans = [self.span(one) for one in self.left]
        state = State(begin.step, begin.epoch, begin.batch, spans, origins, begin.samples, source=begin.source)
        return Plan(Lengths(self.lengths), len(self.lengths), size, state)


@given(
    lengths=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    size=st.integers(1, 4),
    begin=st.tuples(st.integers(0, 6), st.integers(0, 7)),
    left=st.sets(st.integers(0, 30), max_size=5),
    random=st.randoms(use_true_random=False),
)
def test_a_plan_is_that_of_brute_force_in_whatever_order_learners_ask(
    lengths: list[int], size: int, begin: tuple[int, int], left: set[int], random: random_module.Random
) -> None:
    """A learner may be ahead, and others epochs behind it; now and then none needs an epoch any more."""
    epoch = begin[0] % (len(lengths) + 1)  # behind the last one where the checkpoint was at its end
    batch = min(begin[1], [*lengths, 0][epoch])  # behind the last one where the checkpoint was at the end of an epoch
    before = [one for one in BruteForce(lengths, size, BatchNumber(0, 0), set()).all if one < (epoch, batch)]
    expected = BruteForce(lengths, size, BatchNumber(epoch, batch), {before[i] for i in left if i < len(before)})
    plan = expected.plan(size)
    num_rounds, newest, forgotten = len(expected.rounds), epoch, epoch
    numbers = [min(max(i // 3 + random.randint(-4, 4), 0), num_rounds + 1) for i in range(3 * num_rounds + 3)]
    for number in (*numbers, *(random.randrange(number + 1) for number in numbers)):
        newest = max(newest, here := expected.rounds[number].epoch if number < num_rounds else len(lengths))
        if here < forgotten:
            continue
        if random.random() < 0.1:
            plan.forget(forgotten := max(forgotten, here))
        if random.random() < 0.3:  # a checkpoint before it is the first that is asked for
            check_place_of_round(plan, expected, number)
        check_round(plan, expected, number)
        check_place_of_round(plan, expected, number)
        if random.random() < 0.3:
            newest = max(newest, check_borders(plan, expected, newest, forgotten, random))
    for number in (num_rounds, num_rounds + 5):
        assert plan.round(number) is None
    assert plan.end == expected.place(len(lengths), 0)


def check_round(plan: Plan, expected: BruteForce, number: int) -> None:
    if number >= len(expected.rounds):
        assert plan.round(number) is None
        return
    epoch, slots = found = expected.rounds[number]
    assert plan.round(number) == found
    for slot in (*slots, slots.stop):
        assert plan.place(epoch, slot) == expected.place(epoch, slot)
    batches = plan.batches(epoch, slots)
    assert batches == tuple(expected.batch(epoch, slot) for slot in slots)
    assert [plan.planned(epoch, batch).content for batch in batches] == list(batches)
    assert [plan.number(batch) for batch in batches] == [expected.all.index(batch) for batch in batches]


def check_place_of_round(plan: Plan, expected: BruteForce, number: int) -> None:
    found = plan.place_of_round(number)
    if number >= len(expected.rounds):
        assert found is None
    else:
        epoch, slots = expected.rounds[number]
        assert found == expected.place(epoch, slots.start)


def check_borders(plan: Plan, expected: BruteForce, newest: int, first: int, random: random_module.Random) -> int:
    """Check the borders from `first` on, maybe also of an epoch not yet reached; return the newest known epoch."""
    last = min(newest + random.randint(0, 1), len(expected.lengths))
    begin = first + 1
    assert plan.borders(begin, last) == [expected.place(epoch, 0) for epoch in range(begin, last + 1)]
    if begin <= last < len(expected.lengths):
        assert plan.end_of(last) == expected.place(last, expected.lengths[last])
    return last if begin <= last else newest


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("left", [set(), {BatchNumber(0, 2), BatchNumber(1, 0), BatchNumber(1, 3)}])
def test_batches_that_nobody_trained_are_found_with_their_rounds(size: int, left: set[BatchNumber]) -> None:
    """Forgotten epochs count too; batches of an earlier epoch have the round that they come in."""
    lengths = [3, 5, 2, 4, 2, 2]
    begin = BatchNumber(1, 4) if left else BatchNumber(0, 0)
    expected = BruteForce(lengths, size, begin, left)
    plan = expected.plan(size)
    assert plan.round(40) is None
    plan.forget(4)
    in_rounds = [
        (number, batch)
        for number, (epoch, slots) in enumerate(expected.rounds)
        for batch in plan.batches(epoch, list(slots))
    ]
    assert len(in_rounds) == (sum(lengths) if not left else sum(lengths) - 7 + 3)
    for seed in range(20):
        random = random_module.Random(seed)
        missing = [one for one in in_rounds if random.random() < seed / 20]
        trained = {batch for number, batch in in_rounds if (number, batch) not in missing}
        assert list(plan.missing(trained)) == missing


Batches = set[BatchNumber]


def batches_of(spans: list[Span]) -> list[BatchNumber]:
    return [BatchNumber(epoch, i) for epoch, first, end in spans for i in range(first, end)]


def trained_by(state: State, lengths: list[int]) -> Batches:
    """Return the batches that a checkpoint of `state` lists as trained."""
    before = {BatchNumber(epoch, i) for epoch in range(state.epoch) for i in range(lengths[epoch])}
    return (before | {BatchNumber(state.epoch, i) for i in range(state.batch)}) - set(batches_of(state.untrained))


def origins(lengths: list[int], last: int) -> list[Origin]:
    return [Origin(epoch, 0, sum(lengths[:epoch]), {"epoch": epoch}) for epoch in range(last + 1)]


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    num_learners=st.integers(1, 4),
    random=st.randoms(use_true_random=False),
)
def test_checkpoints_have_what_learners_say_that_they_trained(
    lengths: list[int], num_learners: int, random: random_module.Random
) -> None:
    """Some batches of an epoch stay untrained until later ones; now and then training resumes from a checkpoint."""
    ledger, trained, state = Ledger(State()), set[BatchNumber](), State()
    for epoch in range(len(lengths) + 1):
        for _ in range(random.randint(1, 3)):
            known = [BatchNumber(one, i) for one in range(epoch + 1) for i in range([*lengths, 0][one])]
            new = {batch for batch in known if batch not in trained and random.random() < 0.6}
            trained |= new
            learners: list[list[Span]] = [[] for _ in range(num_learners)]
            for batch in sorted(new):
                add_to_spans(random.choice(learners), (*batch, batch.position + 1))
            found = State(epoch=epoch, origins=origins(lengths, epoch), step=len(trained))
            state = ledger.reach(found, [span for spans in learners for span in spans])
            assert trained_by(state, lengths) == trained
            assert state.untrained == merge_spans(state.untrained)
            of_this = [batch.position for batch in trained if batch.epoch == epoch]
            assert state.batch == max(of_this, default=-1) + 1
            assert {one.epoch for one in state.origins} == {one for one, _, _ in state.untrained}
            assert [one.source for one in state.origins] == [{"epoch": one.epoch} for one in state.origins]
            if random.random() < 0.3:
                ledger = Ledger(state)


def test_a_batch_that_was_trained_twice_is_a_mistake() -> None:
    ledger = Ledger(State())
    ledger.reach(State(origins=origins([9], 0)), [(0, 2, 5)])
    with pytest.raises(AssertionError, match="trained before"):
        ledger.reach(State(origins=origins([9], 0)), [(0, 4, 6)])
