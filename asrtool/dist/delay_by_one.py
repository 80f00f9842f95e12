"""Delay-by-one (Zhang et al., arXiv 2110.11199): the mean over all learners, taken while they compute.

w_{k+1} = mean(w_k) + u(w_k): the weights of step k are averaged during that step, and the optimizer then makes its
update u of the mean, from the gradient at w_k. All step together; the communication hides behind the computation.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from asrtool.dist.dealing import Dealing
from asrtool.dist.flat import FlatWeights
from asrtool.dist.strategy import Mixing, Parts, Replica, Spent, Strategy
from asrtool.dist.world import World


class DelayByOne(Mixing):
    """Keeps, beside P weights, as many values: what this learner gives to their mean, and then that mean."""

    before_update = True

    def __init__(self, weights_P: Tensor, world: World, move: Callable[[Tensor], None] | None = None) -> None:
        """`move` makes the weights lie in another tensor; without it the mean is copied to where they are."""
        self.weights_P = weights_P
        self.world = world
        self.move = move

    def start(self) -> None:
        self.mean_P = torch.empty_like(self.weights_P, pin_memory=self.weights_P.is_pinned())
        self.begin()

    def mix(self) -> Spent:
        begin = time.perf_counter()
        self._wait()
        waited = time.perf_counter()
        if self.move:
            self.move(self.mean_P)
            self.weights_P, self.mean_P = self.mean_P, self.weights_P
        else:
            self.weights_P.copy_(self.mean_P)
        return Spent(time.perf_counter() - waited, waited - begin, all_reduce_bytes(self.mean_P, self.world))

    def begin(self) -> None:
        torch.mul(self.weights_P, 1 / self.world.size, out=self.mean_P)
        self.under_way = self.world.begin_sum(self.mean_P)

    def finish(self) -> None:
        self._wait()

    def _wait(self) -> None:
        if self.under_way:
            self.under_way.wait()
            self.under_way = None


def all_reduce_bytes(values: Tensor, world: World) -> int:
    """What a learner sends so that all hold the sum of `values`: each part once on its way to the sum and once back."""
    return 2 * values.nbytes * (world.size - 1) // world.size


def delay_by_one(parts: Parts) -> Strategy:
    flat = FlatWeights(parts.model)
    mixing = DelayByOne(flat.weights_P, parts.world, flat.move)
    return Replica(parts, flat, mixing, Dealing(lockstep=True), parts.task)
