"""Schedule of checkpoints, and requests to stop."""

from __future__ import annotations

import time
from collections.abc import Callable

from asrtool.settings.train import Optimisation
from asrtool.train.loop.stop import Stop

SHORTLY = 10  # before the end of an epoch: one so many-th of the steps between two checkpoints


class Pace:
    """Requests of a learner to the others, for the work queue.

    `first` are its steps before this run.
    """

    def __init__(
        self,
        settings: Optimisation,
        first: int,
        steps_together: bool,
        stop: Stop,
        is_saving: Callable[[], bool],
        ends_early: Callable[[], bool] = lambda: False,
    ) -> None:
        self.first = first
        self._every_steps = settings.save_every_steps
        self._every_s = settings.save_every_minutes * 60
        self._steps_together = steps_together
        self._stop = stop
        self._is_saving = is_saving
        self._ends_early = ends_early
        self._last_s, self._last_number = time.monotonic(), 0
        self.by_steps: list[bool] = []  # of each checkpoint asked for by `save`: whether by steps, or by time alone

    def stop(self) -> bool:
        """Return whether a signal has arrived, or training ends early."""
        return self._stop.requested or self._ends_early()

    def every(self, number: int) -> bool:
        """Return whether a step of synchronous learners makes a checkpoint."""
        every = self._every_steps if self._steps_together else 0
        return every > 0 and number > 0 and (self.first + number) % every == 0

    def save(self, number: int, ends_within: Callable[[int], bool]) -> bool:
        """Return whether a checkpoint is due by time or steps, and none is being written.

        The one at the end of an epoch replaces one requested shortly before.
        """
        steps_due = not self._steps_together and 0 < self._every_steps <= number - self._last_number
        time_due = 0 < self._every_s <= time.monotonic() - self._last_s
        if not (steps_due or time_due) or self._is_saving():
            return False
        if steps_due:
            self._last_number = number
            if ends_within(self._every_steps // SHORTLY):
                return False
        self.by_steps.append(steps_due)
        self.reset()
        return True

    def reset(self) -> None:
        """Count from the checkpoint that has just been taken."""
        self._last_s = time.monotonic()
