"""The rounds of a cluster model as the rounds of a real plan, whose epochs have each a number of batches of their own.

The model has as many batches in each epoch as the largest one; what is behind the end of an epoch is no step. So its
clock is late by the time of these, less than a step of each learner in an epoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from asrtool.predict.simulate.events import Begin, End, Event, Push, Round, Update
from asrtool.train.batches.plan import Plan


def epoch_sizes(plan: Plan, num_epochs: int) -> list[int]:
    """Batches of each epoch."""
    return [after.step - before.step for before, after in itertools.pairwise(plan.borders(0, num_epochs))]


class Placed:
    """Events of the model to those of epochs of these `sizes`, in rounds of `round_size` batches."""

    def __init__(self, sizes: Sequence[int], round_size: int) -> None:
        self.sizes = sizes
        self.num_rounds = [-(-size // round_size) for size in sizes]
        self.first = list(itertools.accumulate(self.num_rounds, initial=0))
        self.of_model = max(self.num_rounds)
        self.idle: set[int] = set()  # learners whose last round is none

    def place(self, event: Event) -> Event | None:
        """`event`, with its round and batch where it begins them; None where there is no such step."""
        if isinstance(event, Begin):
            return self._begin(event)
        if isinstance(event, Round):
            return None if self.idle else event
        if isinstance(event, Update | Push | End) and event.learner in self.idle:
            return None
        return event

    def _begin(self, event: Begin) -> Begin | None:
        epoch, place = divmod(event.number, self.of_model)
        if place >= self.num_rounds[epoch]:
            self.idle.add(event.learner)
            return None
        self.idle.discard(event.learner)
        position = event.position
        if position is not None and position >= self.sizes[epoch]:
            position = None
        return event._replace(number=self.first[epoch] + place, epoch=epoch, position=position)
