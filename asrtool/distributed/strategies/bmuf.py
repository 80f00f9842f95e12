"""Blockwise model-update filtering (Chen and Huo 2016).

The mean over all learners every K steps, with momentum: G = mean(w) - w'; D = eta D + zeta G; W = W
+ D. Here w' are the weights with which learners began the block. With classic block momentum they
begin at w' = W. With Nesterov's they begin at w' = W + eta D, where the momentum alone would take W
next. With eta = 0 and zeta = 1 either is plain periodic averaging. Buffers are plainly averaged:
momentum would carry a variance below zero.

The paper was not available. CNTK and fairseq differ: they add D + eta D to w' instead of W. So what
each block begins ahead adds up, and a steady G moves the weights 1 + eta times as far.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from asrtool.distributed.strategies.replica import LocalReplica, MixingRule
from asrtool.distributed.strategies.strategy import StepCost, Strategy, StrategyContext
from asrtool.distributed.transport.device import clock_of
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.distributed.world import MESSAGE_TYPES, World, all_reduce_bytes
from asrtool.settings.distributed import Bmuf


class BlockFilter:
    """Weights at the start of a block, and their momentum: alike at all learners."""

    def __init__(self, weights_P: Tensor, num_weights: int, settings: Bmuf) -> None:
        """Take the weights at the first block; those after `num_weights` are buffers."""
        self.num_weights = num_weights
        self.momentum = settings.block_momentum
        self.rate = settings.block_rate
        self.nesterov = settings.nesterov
        self.previous_P = weights_P.clone()
        self.momentum_W = torch.zeros_like(weights_P[:num_weights])

    def end_block(self, mean_P: Tensor, out_P: Tensor) -> None:
        """Compute the weights with which learners begin the next block."""
        mean_W, previous_W = mean_P[: self.num_weights], self.previous_P[: self.num_weights]
        change_W = torch.sub(mean_W, previous_W, out=previous_W)
        self.momentum_W.mul_(self.momentum).add_(change_W, alpha=self.rate)
        # Distance of the next block's begin from the mean, in the memory of the change G.
        if self.nesterov:
            # W + eta D less w', which was W + eta D before D changed: zeta G + eta D
            beyond_W = change_W.mul_(self.rate - 1).add_(self.momentum_W, alpha=self.momentum)
        else:
            beyond_W = torch.sub(self.momentum_W, change_W, out=change_W)
        # w' + D, written so that D = G leaves the mean as it is, bit for bit
        torch.add(mean_W, beyond_W, out=out_P[: self.num_weights])
        out_P[self.num_weights :].copy_(mean_P[self.num_weights :])
        self.previous_P.copy_(out_P)


class BlockMomentum(MixingRule):
    """Mixing rule of the filter, by the mean of all P.

    Messages of bf16 are of what changed since the start of the block.
    """

    def __init__(self, flat: FlatWeights, world: World, settings: Bmuf) -> None:
        self.weights_P = flat.weights_P
        self.mean_P = torch.empty_like(self.weights_P)
        self.filter = BlockFilter(self.weights_P, flat.num_weights, settings)
        self.world = world
        self.clock = clock_of(flat.weights_P)
        self.block_steps = settings.block_steps
        self.num_steps = 0
        self.message_type = MESSAGE_TYPES[settings.message_type]

    def start(self) -> None:
        if self.num_steps == 0:
            self.filter.previous_P.copy_(self.weights_P)

    def mix(self) -> StepCost:
        self.num_steps += 1
        begin = waited = self.clock.mark()
        ends_block = self.num_steps % self.block_steps == 0
        if ends_block:
            self.mean_P.copy_(self.weights_P)
            self.world.mean_beyond(self.filter.previous_P, self.mean_P, self.message_type)
            waited = self.clock.mark()
            self.filter.end_block(self.mean_P, self.weights_P)
        num_bytes = all_reduce_bytes(self.mean_P, self.world, self.message_type)
        wait_s, comm_s = self.clock.seconds((begin, waited), (waited, self.clock.mark()))
        return StepCost(comm_s, wait_s, num_bytes if ends_block else 0)

    def state(self) -> dict[str, Any]:
        return {"num_steps": self.num_steps}

    def shared_state(self) -> dict[str, Any]:
        return {"previous_P": self.filter.previous_P, "momentum_W": self.filter.momentum_W}

    def load_state(self, state: dict[str, Any], shared: dict[str, Any]) -> None:
        self.num_steps = state["num_steps"]
        self.filter.previous_P.copy_(shared["previous_P"])
        self.filter.momentum_W.copy_(shared["momentum_W"])


def bmuf(context: StrategyContext) -> Strategy:
    flat = FlatWeights(context.model)
    mixing = BlockMomentum(flat, context.world, context.settings)
    return LocalReplica(context, flat, mixing, AssignmentRule(lockstep=True), context.task)
