"""Rounds of the cluster model, all of whose epochs are alike, as those of epochs of their own sizes."""

from __future__ import annotations

from asrtool.predict.simulate.events import Begin, Change, End, Event, Round
from asrtool.predict.virtual.events import BatchPlacement

SIZES = (5, 7, 6)


def begins(num_batches: int, round_size: int, num_epochs: int) -> list[Begin]:
    """As the cluster model emits them: each epoch of so many batches, in rounds."""
    rounds = -(-num_batches // round_size)
    found = []
    for number in range(rounds * num_epochs):
        epoch, place = divmod(number, rounds)
        for member in range(round_size):
            position = place * round_size + member
            found.append(Begin(0.0, member, number, epoch, position if position < num_batches else None))
    return found


def placed(placing: BatchPlacement, events: list[Begin]) -> list[Begin]:
    found = [placing.place(event) for event in events]
    return [event for event in found if isinstance(event, Begin)]


def test_each_batch_of_each_epoch_is_begun_once_and_rounds_are_numbered_without_gaps() -> None:
    for round_size in (1, 2, 4):
        found = placed(BatchPlacement(SIZES, round_size), begins(max(SIZES), round_size, len(SIZES)))
        batches = [(event.epoch, event.position) for event in found if event.position is not None]
        assert sorted(batches) == [(epoch, i) for epoch, size in enumerate(SIZES) for i in range(size)]
        assert sorted({event.number for event in found}) == list(range(sum(-(-size // round_size) for size in SIZES)))


def test_what_is_no_step_is_left_out_until_the_learner_begins_another() -> None:
    placing = BatchPlacement((1, 2), 1)
    step: list[Event] = [Change(0.0, "update", 3), Change(0.0, "push", 3, 0), End(0.0, 3, 0.0, 1.0)]
    assert [placing.place(event) for event in [Begin(0.0, 3, 0, 0, 0), *step]] == [Begin(0.0, 3, 0, 0, 0), *step]
    assert placing.place(Begin(0.0, 3, 1, 0, 1)) is None
    assert [placing.place(event) for event in step] == [None, None, None]
    for other in (Change(0.0, "update", 2), Change(0.0, "take", 3)):
        assert placing.place(other) == other
    assert placing.place(Begin(0.0, 3, 2, 1, 0)) == Begin(0.0, 3, 1, 1, 0)
    assert placing.place(step[0]) == step[0]


def test_a_round_of_all_behind_the_end_of_an_epoch_is_none() -> None:
    placing = BatchPlacement((2, 3), 2)
    assert placing.place(Round(1.0)) == Round(1.0)
    for learner in range(2):
        assert placing.place(Begin(1.0, learner, 1, 0, (2, None)[learner])) is None
    assert placing.place(Round(2.0)) is None
    for learner in range(2):
        placing.place(Begin(2.0, learner, 2, 1, learner))
    assert placing.place(Round(3.0)) == Round(3.0)
