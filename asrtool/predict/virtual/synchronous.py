"""Strategies in lock-step: the rule of a step after all learners have begun it.

allreduce and ps-sync (and single): w <- w - alpha mean_i g_i(w). adpsgd-d1: w_i <- mean(w) + u_i(w_i). bmuf: a step of
each, and every K steps a filter of the mean. Each is as in the module of the strategy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from asrtool.distributed.strategies.bmuf import BlockFilter
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.predict.simulate.events import Event, Round
from asrtool.predict.virtual.replica import Replica, Rule, SharedModel, VirtualStep
from asrtool.settings.distributed import Bmuf


class SynchronousRule(Rule):
    """Learners in groups that have the same weights."""

    def __init__(self, shared: SharedModel, num_learners: int, group_size: int, share_statistics: bool = True) -> None:
        super().__init__(shared, num_learners // group_size, AssignmentRule(group_size=group_size, lockstep=True))
        ranks = range(num_learners)
        groups = [ranks[first : first + group_size] for first in ranks[::group_size]]
        self.replicas = [Replica(shared, members, share_statistics) for members in groups]

    def follow(self, event: Event) -> None:
        assert isinstance(event, Round), event
        for replica in self.replicas:
            self._step(replica, [self.steps[learner] for learner in replica.members])

    def enter(self, learner: int, epoch: int) -> None:
        replica = self.replicas[learner // self.assignment_rule.group_size]
        if learner == replica.members[0]:
            self.means[epoch].add(replica.weights_P)

    def mean(self) -> Tensor:
        """Return the mean of all weights, summed in their order, as learners do."""
        total_P = self.replicas[0].weights_P.clone()
        for replica in self.replicas[1:]:
            total_P += replica.weights_P
        return total_P.div_(len(self.replicas))

    def _step(self, replica: Replica, group: Sequence[VirtualStep]) -> None:
        replica.compute(group)
        replica.apply(group)


class DelayByOne(SynchronousRule):
    """Delay-by-one: the mean before the step replaces weights after their gradient."""

    mean_P: Tensor

    def follow(self, event: Event) -> None:
        self.mean_P = self.mean()
        super().follow(event)

    def _step(self, replica: Replica, group: Sequence[VirtualStep]) -> None:
        num_weights = self.shared.flat.num_weights
        before_B = replica.buffers_B.clone()
        replica.compute(group)
        replica.weights_P[:num_weights].copy_(self.mean_P[:num_weights])
        replica.buffers_B.add_(self.mean_P[num_weights:] - before_B)
        replica.apply(group)


class Blocks(SynchronousRule):
    """Steps of its own for each learner, and the filter at the end of a block."""

    def __init__(self, shared: SharedModel, num_learners: int, settings: Bmuf) -> None:
        super().__init__(shared, num_learners, 1)
        self.filter = BlockFilter(shared.start_P, shared.flat.num_weights, settings)
        self.block_steps = settings.block_steps
        self.num_steps = 0

    def follow(self, event: Event) -> None:
        super().follow(event)
        self.num_steps += 1
        if self.num_steps % self.block_steps == 0:
            mean_P = self.mean()
            begin_P = torch.empty_like(mean_P)
            self.filter.end_block(mean_P, begin_P)
            for replica in self.replicas:
                replica.weights_P.copy_(begin_P)
