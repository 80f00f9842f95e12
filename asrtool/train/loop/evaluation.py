"""The losses on dev: by all learners together, or by one of them beside its training."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from asrtool.distributed.world import World
from asrtool.models.acoustic import AcousticModel
from asrtool.models.precision import Precision
from asrtool.train.batches.source import DevSet
from asrtool.train.loop.loss import Sums, sum_loss
from asrtool.train.loop.stop import Stop, Stopped


@dataclass
class Evaluation:
    """Of models on `dev_set`; ends once `stop` is requested, or training is `closing`."""

    dev_set: DevSet
    precision: Precision
    world: World
    num_threads: int
    stop: Stop
    closing: threading.Event

    def together(self, model: AcousticModel) -> Sums:
        """The losses of `model`, of which each learner computes its part. Raises Stopped for all learners alike."""
        batches = self.dev_set.plan_eval()[self.world.index :: self.world.size]
        own, stopped = Sums(), False
        try:
            own = sum_loss(model, self.dev_set, batches, self.precision, self._check)
        except Stopped:
            stopped = True
        of_all = self.world.gather((own, stopped))
        if any(stopped for _, stopped in of_all):
            raise Stopped
        total = Sums()
        for sums, _ in of_all:
            total.add(sums.total, sums.normaliser, sums.figures)
        return total

    def alone(self, model: AcousticModel) -> Sums:
        """The same, in a thread beside the training. Raises Stopped."""
        torch.set_num_threads(self.num_threads)  # of this thread
        return sum_loss(model, self.dev_set, self.dev_set.plan_eval(), self.precision, self._check)

    def _check(self) -> None:
        self.stop.check()
        if self.closing.is_set():
            raise Stopped


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
