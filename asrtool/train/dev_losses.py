"""The losses on dev of a training, as far as they are known: what schedules and early stopping follow.

Learners that step together evaluate together, so all know a loss before the next epoch begins. Of those that wait for
nobody one evaluates beside the training, and says in the store what it has found; each of the others knows it from the
step on at which it looks. What a checkpoint does not have yet is evaluated before training resumes.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Sequence

from asrtool.distributed.world import World

EpochLoss = tuple[int, float]  # how many epochs had ended, and the loss on dev then
FAR = 2**62


class DevLosses:
    """Begins with those `found` in a checkpoint, the same at all learners. Several threads may use it."""

    def __init__(self, world: World, found: Sequence[EpochLoss], early_stop: int) -> None:
        """Training ends after `early_stop` epochs without a lower loss than before; 0 is never."""
        self._store = world.store
        self._lock = threading.Lock()
        self._early_stop = early_stop
        self.found = list(found)

    def add(self, epochs: int, loss: float) -> None:
        """That of a model after so many epochs, unless it is known already; all learners call this with the same."""
        if epochs not in dict(self.found):
            self.found.append((epochs, loss))

    def publish(self, epochs: int, loss: float) -> None:
        """The same, by one learner, for the others as well."""
        with self._lock:
            self._look(FAR)
            if epochs not in dict(self.found):
                self._store.compare_set(_key(len(self.found)), "", json.dumps((epochs, loss)))
                self._look(FAR)

    def known(self, num_ended: int) -> list[float]:
        """In order. Where there may be more, `num_ended` epochs having ended, it is asked what another has found."""
        with self._lock:
            self._look(num_ended)
            return [loss for _, loss in self.found]

    @property
    def best(self) -> EpochLoss | None:
        """The lowest one, the first of equal ones; None where none is known."""
        return min(self.found, key=lambda one: (math.isnan(one[1]), one[1]), default=None)

    @property
    def end(self) -> EpochLoss | None:
        """That behind which training ends early; None where it continues. Later ones change nothing."""
        lowest, since = math.inf, 0
        for epochs, loss in list(self.found):
            if loss < lowest:
                lowest, since = loss, epochs
            elif self._early_stop and epochs - since >= self._early_stop:
                return epochs, loss
        return None

    def _look(self, num_ended: int) -> None:
        while self._store and len(self.found) < num_ended and self._store.check([_key(len(self.found))]):
            epochs, loss = json.loads(self._store.get(_key(len(self.found))))
            self.found.append((epochs, loss))


def _key(number: int) -> str:
    """The key of one of them, counted over the whole training."""
    return f"dev/{number}"
