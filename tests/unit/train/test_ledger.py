"""The ledger of a training against sets of batches."""

from __future__ import annotations

import random as random_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrtool.distributed.work.work_queue import BatchNumber
from asrtool.train.checkpoints.checkpoint import Origin, Span, State
from asrtool.train.ledger import Ledger, joined, note

Batches = set[BatchNumber]


def batches_of(spans: list[Span]) -> list[BatchNumber]:
    return [BatchNumber(epoch, i) for epoch, first, end in spans for i in range(first, end)]


def trained_by(state: State, lengths: list[int]) -> Batches:
    """What a checkpoint of `state` says is in its weights."""
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
                note(random.choice(learners), batch)
            found = State(epoch=epoch, origins=origins(lengths, epoch), step=len(trained))
            state = ledger.reach(found, [span for spans in learners for span in spans])
            assert trained_by(state, lengths) == trained
            assert state.untrained == joined(state.untrained)
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
