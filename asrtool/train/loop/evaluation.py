"""Losses on dev, by all learners together or by one beside its training."""

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
    """Evaluation on `dev_set`; ends if `stop` is requested or training `closing`."""

    dev_set: DevSet
    precision: Precision
    world: World
    num_threads: int
    stop: Stop
    closing: threading.Event

    def on_all_learners(self, model: AcousticModel) -> Sums:
        """Return the losses of `model`, a part by each learner; raises Stopped for all."""
        batches = self.dev_set.plan_eval()[self.world.index :: self.world.size]
        own, stopped = Sums(), False
        try:
            own = sum_loss(model, self.dev_set, batches, self.precision, self._check)
        except Stopped:
            stopped = True
        gathered = self.world.gather((own, stopped))
        if any(stopped for _, stopped in gathered):
            raise Stopped
        total = Sums()
        for sums, _ in gathered:
            total.add(sums.total, sums.normaliser, sums.figures)
        return total

    def on_this_learner(self, model: AcousticModel) -> Sums:
        """Return the losses of `model` in a thread beside training; raises Stopped."""
        torch.set_num_threads(self.num_threads)  # threads of this thread
        return sum_loss(model, self.dev_set, self.dev_set.plan_eval(), self.precision, self._check)

    def _check(self) -> None:
        self.stop.check()
        if self.closing.is_set():
            raise Stopped


EpochLoss = tuple[int, float]  # number of ended epochs, and the loss on dev then
UNLIMITED = 2**62


class DevLosses:
    """Dev losses, the same at all learners, from those `found` in a checkpoint.

    Several threads may use it.
    """

    def __init__(self, world: World, found: Sequence[EpochLoss], early_stop: int) -> None:
        """Set early stopping after `early_stop` epochs without a lower loss; 0 is never."""
        self._store = world.store
        self._lock = threading.Lock()
        self._early_stop = early_stop
        self.found = list(found)

    def add(self, epochs: int, loss: float) -> None:
        """Add the loss after `epochs`, unless known; all learners add the same."""
        if epochs not in dict(self.found):
            self.found.append((epochs, loss))

    def publish(self, epochs: int, loss: float) -> None:
        """Add the loss after `epochs` by one learner, for the others as well."""
        with self._lock:
            self._look(UNLIMITED)
            if epochs not in dict(self.found):
                self._store.compare_set(_key(len(self.found)), "", json.dumps((epochs, loss)))
                self._look(UNLIMITED)

    def known(self, num_ended: int) -> list[float]:
        """Return the known losses in order; ask for another learner's if some may be new."""
        with self._lock:
            self._look(num_ended)
            return [loss for _, loss in self.found]

    @property
    def best(self) -> EpochLoss | None:
        """Return the epoch and loss of the first lowest loss; None without any."""
        return min(self.found, key=lambda one: (math.isnan(one[1]), one[1]), default=None)

    @property
    def end(self) -> EpochLoss | None:
        """Return the epoch that triggers early stopping, or None."""
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
    """Return the store key of a dev loss, numbered over the whole training."""
    return f"dev/{number}"
