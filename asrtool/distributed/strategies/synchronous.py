"""Learners with the same weights at every step, and training by one learner."""

from __future__ import annotations

import contextlib
from typing import Any

from torch import nn

from asrtool.distributed.strategies.strategy import (
    ConsensusMetrics,
    Snapshot,
    StepCost,
    Strategy,
    StrategyContext,
    optimizer_and_update,
)
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.errors import AsrtoolError


class SynchronousStrategy(Strategy):
    """A learner with the same weights as all others, or the only one."""

    same_weights = True

    def __init__(self, context: StrategyContext, assignment_rule: AssignmentRule, task: nn.Module) -> None:
        self.assignment_rule = assignment_rule
        self.task = task
        self.optimizer, self.update = optimizer_and_update(context)

    def step(self) -> tuple[float, StepCost]:
        return self.update.step(), StepCost()

    def synchronise(self) -> ConsensusMetrics:
        return ConsensusMetrics(0.0, 0.0)

    def consensus(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def snapshot(self, cut: int) -> Snapshot:
        return Snapshot(learner={}, shared={"optimizer": self.optimizer.state_dict()})

    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        self.load_optimizer(learner, shared)

    def load_optimizer(self, learner: dict[str, Any], shared: dict[str, Any]) -> bool:
        self.optimizer.load_state_dict(shared["optimizer"])
        return True


def single(context: StrategyContext) -> Strategy:
    """One learner: w <- w - alpha g(w).

    Raises AsrtoolError if there are more.
    """
    if context.world.size > 1:
        raise AsrtoolError(
            f"strategy single with {context.world.size} learners",
            "choose another --strategy, for example adpsgd-random",
        )
    return SynchronousStrategy(context, AssignmentRule(), context.task)
