"""The losses on dev: by all learners together, or by one of them beside its training."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch

from asrtool.distributed.world import World
from asrtool.models.acoustic import AcousticModel
from asrtool.models.precision import Precision
from asrtool.train.loss import Sums, sum_loss
from asrtool.train.source import DevSet
from asrtool.train.stop import Stop, Stopped


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
        batches = self.dev_set.plan_eval()[self.world.place :: self.world.size]
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
