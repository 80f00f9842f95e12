"""Learners that never exchange anything: what the others are compared with.

Each trains weights of its own on its part of the batches, w^i <- w^i - alpha g(w^i); their mean stands for all.
"""

from __future__ import annotations

from torch import Tensor

from asrtool.distributed.strategies.replica import LocalReplica, MixingRule
from asrtool.distributed.strategies.strategy import StepCost, Strategy, StrategyContext
from asrtool.distributed.transport.view import Recorded
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.work.work_queue import AssignmentRule


class NoMixing(MixingRule):
    """Leaves the weights of each learner as they are."""

    asynchronous = True

    def __init__(self, weights_P: Tensor) -> None:
        self.weights_P = weights_P

    def mix(self) -> StepCost:
        return StepCost()

    def record(self, cut: int) -> Recorded:
        recorded = Recorded(self.weights_P.to("cpu", copy=True))
        recorded.settled.set()
        return recorded


def no_communication(context: StrategyContext) -> Strategy:
    flat = FlatWeights(context.model)
    return LocalReplica(context, flat, NoMixing(flat.weights_P), AssignmentRule(), context.task)
