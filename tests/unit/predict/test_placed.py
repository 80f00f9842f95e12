"""Rounds of the cluster model, all of whose epochs are alike, as those of epochs of their own sizes."""

from __future__ import annotations

import pytest

from asrtool.predict.simulate.events import Begin, Change, End, Event, Round
from asrtool.predict.virtual.events import BatchPlacement

SIZES = (5, 7, 6)


@pytest.mark.parametrize("round_size", [1, 2, 4])
def test_each_batch_of_each_epoch_is_begun_once_and_rounds_are_numbered_without_gaps(round_size: int) -> None:
    placing, num_rounds = BatchPlacement(SIZES, round_size), -(-max(SIZES) // round_size)
    found = []
    for number in range(num_rounds * len(SIZES)):
        epoch, place = divmod(number, num_rounds)
        for member in range(round_size):
            position = place * round_size + member
            found.append(placing.place(Begin(0.0, member, number, epoch, position if position < 7 else None)))
    begun = [event for event in found if isinstance(event, Begin)]
    batches = [(event.epoch, event.position) for event in begun if event.position is not None]
    assert sorted(batches) == [(epoch, i) for epoch, size in enumerate(SIZES) for i in range(size)]
    assert sorted({event.number for event in begun}) == list(range(sum(-(-size // round_size) for size in SIZES)))


def test_a_step_after_the_end_of_an_epoch_is_left_out_until_the_learner_begins_another() -> None:
    placing = BatchPlacement((1, 2), 1)
    step: list[Event] = [Change(0.0, "update", 3), Change(0.0, "push", 3, 0), End(0.0, 3, 0.0, 1.0), Round(1.0)]
    assert [placing.place(event) for event in [Begin(0.0, 3, 0, 0, 0), *step]] == [Begin(0.0, 3, 0, 0, 0), *step]
    assert [placing.place(event) for event in [Begin(0.0, 3, 1, 0, 1), *step]] == [None] * 5
    for other in (Change(0.0, "update", 2), Change(0.0, "take", 3)):
        assert placing.place(other) == other
    assert placing.place(Begin(0.0, 3, 2, 1, 0)) == Begin(0.0, 3, 1, 1, 0)
    assert [placing.place(event) for event in step] == step
