"""Delay-by-one (Zhang et al., arXiv 2110.11199): learners average as they compute.

w_{k+1} = mean(w_k) + u(w_k): the weights of step k are averaged during that step, and the optimizer
then makes its update u of the mean, from the gradient at w_k. All learners step together, and the
computation hides the communication. Buffers are averaged alike, with u the change by the forward
pass.

Messages of bf16 are of the differences to the last mean, which all have: only u is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from asrtool.distributed.strategies.replica import LocalReplica, MixingRule
from asrtool.distributed.strategies.strategy import StepCost, Strategy, StrategyContext
from asrtool.distributed.transport.device import clock_of, in_background
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.distributed.world import MESSAGE_TYPES, World, all_reduce_bytes


@dataclass(eq=False)
class DelayByOne(MixingRule):
    """Mixing rule that keeps P values, and as many of their mean over the learners.

    The mean is copied and computed in the background. The values after the first `num_weights` are
    buffers, which a forward pass changes: they are copied before it.
    """

    before_update = True

    weights_P: Tensor
    num_weights: int
    world: World  # for this alone: collectives of one group begin in the same order at all learners
    message_type: torch.dtype = torch.float32
    move: Callable[[Tensor], None] | None = None  # puts the weights in a tensor; without it the mean is copied
    last_P: Tensor = field(default_factory=lambda: torch.empty(0))  # mean, if messages are differences to it
    under_way: bool = False

    def __post_init__(self) -> None:
        self.clock = clock_of(self.weights_P)
        self.background = in_background(self._take_mean, self.weights_P, "mean")

    def start(self) -> None:
        self.mean_P = torch.empty_like(self.weights_P)
        if self.message_type != torch.float32 and not len(self.last_P):
            self.last_P = self.weights_P.clone()
            self.world.mean(self.last_P)
        self.begin()

    def mix(self) -> StepCost:
        begin = self.clock.mark()
        self.finish()
        waited = self.clock.mark()
        if len(self.last_P):
            self.last_P.copy_(self.mean_P)
        # The mean of buffers gets the changes by the forward pass since. Written as now + (mean - before), it
        # is bit for bit the value now if the mean equals the value before.
        now_B, mean_B = self.weights_P[self.num_weights :], self.mean_P[self.num_weights :]
        torch.add(now_B, mean_B.sub_(self.before_B), out=mean_B)
        if self.move:
            self.move(self.mean_P)
            self.weights_P, self.mean_P = self.mean_P, self.weights_P
        else:
            self.weights_P.copy_(self.mean_P)
        wait_s, comm_s = self.clock.seconds((begin, waited), (waited, self.clock.mark()))
        return StepCost(comm_s, wait_s, all_reduce_bytes(self.mean_P, self.world, self.message_type))

    def begin(self) -> None:
        self.under_way = True
        self.before_B = self.weights_P[self.num_weights :].clone()
        self.background.begin()

    def finish(self) -> None:
        if self.under_way:
            self.under_way = False
            self.background.wait()

    def shared_state(self) -> dict[str, Any]:
        return {"last_P": self.last_P} if len(self.last_P) else {}

    def load_state(self, state: dict[str, Any], shared: dict[str, Any]) -> None:
        if "last_P" in shared:
            self.last_P = shared["last_P"].to(self.weights_P.device, copy=True)

    def close(self) -> None:
        """End the thread after the mean under way.

        If this learner fails, the others have yet to join the mean; to end within it would abort
        the process.
        """
        self.background.close()

    def _take_mean(self) -> None:
        self.mean_P[: self.num_weights].copy_(self.weights_P[: self.num_weights])
        self.mean_P[self.num_weights :].copy_(self.before_B)
        self.world.mean_beyond(self.last_P, self.mean_P, self.message_type)


def delay_by_one(context: StrategyContext) -> Strategy:
    flat = FlatWeights(context.model)
    world = context.world.split([range(context.world.size)])
    message_type = MESSAGE_TYPES[context.settings.message_type]
    mixing = DelayByOne(flat.weights_P, flat.num_weights, world, message_type, flat.move)
    return LocalReplica(context, flat, mixing, AssignmentRule(lockstep=True), context.task)
