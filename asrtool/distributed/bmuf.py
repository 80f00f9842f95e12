"""Blockwise model-update filtering (Chen and Huo 2016): the mean over all learners every K steps, with momentum.

G = mean(w) - w_prev; D = eta D + zeta G; w = w_prev + D. With eta = 0 and zeta = 1 it is plain periodic averaging.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from asrtool.distributed.flat import FlatWeights
from asrtool.distributed.settings import Bmuf
from asrtool.distributed.strategy import LocalReplica, MixingRule, StepCost, Strategy, StrategyContext
from asrtool.distributed.work_queue import AssignmentRule
from asrtool.distributed.world import World, all_reduce_bytes


class BlockMomentum(MixingRule):
    """Keeps, of P weights each, those of the block's begin, the momentum D, and the mean while it is computed."""

    def __init__(self, weights_P: Tensor, world: World, settings: Bmuf) -> None:
        self.weights_P = weights_P
        self.world = world
        self.block_steps = settings.block_steps
        self.momentum = settings.block_momentum
        self.rate = settings.block_rate
        self.num_steps = 0
        self.previous_P = weights_P.clone()
        self.momentum_P = torch.zeros_like(weights_P)
        self.mean_P = torch.empty_like(weights_P)

    def start(self) -> None:
        if self.num_steps == 0:
            self.previous_P.copy_(self.weights_P)

    def mix(self) -> StepCost:
        self.num_steps += 1
        if self.num_steps % self.block_steps:
            return StepCost()
        begin = time.perf_counter()
        self.mean_P.copy_(self.weights_P)
        self.world.mean(self.mean_P)
        waited = time.perf_counter()
        change_P = torch.sub(self.mean_P, self.previous_P, out=self.previous_P)
        self.momentum_P.mul_(self.momentum).add_(change_P, alpha=self.rate)
        # w_prev + D, written so that D = G leaves the mean as it is, bit for bit
        torch.add(self.mean_P, torch.sub(self.momentum_P, change_P, out=self.previous_P), out=self.weights_P)
        self.previous_P.copy_(self.weights_P)
        return StepCost(time.perf_counter() - waited, waited - begin, all_reduce_bytes(self.mean_P, self.world))

    def state(self) -> dict[str, Any]:
        return {"num_steps": self.num_steps, "previous_P": self.previous_P, "momentum_P": self.momentum_P}

    def load_state(self, state: dict[str, Any]) -> None:
        self.num_steps = state["num_steps"]
        self.previous_P.copy_(state["previous_P"])
        self.momentum_P.copy_(state["momentum_P"])


def bmuf(context: StrategyContext) -> Strategy:
    flat = FlatWeights(context.model)
    mixing = BlockMomentum(flat.weights_P, context.world, context.settings)
    return LocalReplica(context, flat, mixing, AssignmentRule(lockstep=True), context.task)
