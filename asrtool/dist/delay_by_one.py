"""Delay-by-one (Zhang et al., arXiv 2110.11199): the mean over all learners, taken while they compute.

w_{k+1} = mean(w_k) + u(w_k): the weights of step k are averaged during that step, and the update u that the optimizer
makes from the gradient at w_k is added to the mean. All step together; the communication hides behind the computation.
"""

from __future__ import annotations

import time

from torch import Tensor

from asrtool.dist.dealing import Dealing
from asrtool.dist.flat import FlatWeights, chunks
from asrtool.dist.strategy import Mixing, Parts, Replica, Spent, Strategy
from asrtool.dist.world import World


class DelayByOne(Mixing):
    """Keeps, of P weights each, those of the step's begin and the sum over the learners that is under way."""

    def __init__(self, weights_P: Tensor, world: World) -> None:
        self.weights_P = weights_P
        self.world = world

    def start(self) -> None:
        self.base_P = self.weights_P.clone()
        self.sum_P = self.weights_P.clone()
        self.under_way = self.world.begin_sum(self.sum_P)

    def mix(self) -> Spent:
        """Written as w + (mean - base), which leaves the weights of a learner alone as they are, bit for bit."""
        begin = time.perf_counter()
        self._wait()
        waited = time.perf_counter()
        for weights, base, total in chunks(self.weights_P, self.base_P, self.sum_P):
            weights += total.div_(self.world.size).sub_(base)
            base.copy_(weights)
            total.copy_(weights)
        self.under_way = self.world.begin_sum(self.sum_P)
        return Spent(time.perf_counter() - waited, waited - begin, all_reduce_bytes(self.sum_P, self.world))

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
    mixing = DelayByOne(flat.weights_P, parts.world)
    return Replica(parts, flat, mixing, Dealing(lockstep=True), parts.task)
