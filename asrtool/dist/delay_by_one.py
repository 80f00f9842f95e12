"""Delay-by-one (Zhang et al., arXiv 2110.11199): the mean over all learners, taken while they compute.

w_{k+1} = mean(w_k) + u(w_k): the weights of step k are averaged during that step, and the optimizer then makes its
update u of the mean, from the gradient at w_k. All step together; the communication hides behind the computation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import torch
from torch import Tensor

from asrtool.dist.dealing import Dealing
from asrtool.dist.flat import FlatWeights
from asrtool.dist.patience import PATIENCE_S
from asrtool.dist.strategy import Mixing, Parts, Replica, Spent, Strategy
from asrtool.dist.world import World


class DelayByOne(Mixing):
    """Keeps, beside P weights, as many values: their mean over the learners.

    A thread copies the weights and takes the mean, for even to begin that took the computing thread 0.3 ms a step.
    """

    before_update = True

    def __init__(self, weights_P: Tensor, world: World, move: Callable[[Tensor], None] | None = None) -> None:
        """`move` makes the weights lie in another tensor; without it the mean is copied to where they are.

        `world` has to be for this alone: collectives of one group begin in the same order at all learners.
        """
        self.weights_P = weights_P
        self.world = world
        self.move = move
        self.under_way = False
        self.asked: SimpleQueue[bool] = SimpleQueue()  # True for a mean, False for the end
        self.taken: SimpleQueue[Exception | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._serve, name="mean", daemon=True)

    def start(self) -> None:
        self.mean_P = torch.empty_like(self.weights_P, pin_memory=self.weights_P.is_pinned())
        self.thread.start()
        self.begin()

    def mix(self) -> Spent:
        begin = time.perf_counter()
        self.finish()
        waited = time.perf_counter()
        if self.move:
            self.move(self.mean_P)
            self.weights_P, self.mean_P = self.mean_P, self.weights_P
        else:
            self.weights_P.copy_(self.mean_P)
        return Spent(time.perf_counter() - waited, waited - begin, all_reduce_bytes(self.mean_P, self.world))

    def begin(self) -> None:
        self.under_way = True
        self.asked.put(True)

    def finish(self) -> None:
        """Raises RuntimeError where another learner is lost."""
        if self.under_way:
            self.under_way = False
            if error := self.taken.get():
                raise error

    def close(self) -> None:
        """Where this learner fails, the others are still to come to the mean; to end within it would abort the process."""
        self.asked.put(False)
        if self.thread.is_alive():
            self.thread.join(PATIENCE_S)

    def _serve(self) -> None:
        while self.asked.get():
            try:
                self.mean_P.copy_(self.weights_P)
                self.world.mean(self.mean_P)
            except Exception as error:  # whatever it is: the computing thread would wait for ever
                self.taken.put(error)
            else:
                self.taken.put(None)


def all_reduce_bytes(values: Tensor, world: World) -> int:
    """What a learner sends so that all hold the sum of `values`: each part once on its way to the sum and once back."""
    return 2 * values.nbytes * (world.size - 1) // world.size


def delay_by_one(parts: Parts) -> Strategy:
    flat = FlatWeights(parts.model)
    mixing = DelayByOne(flat.weights_P, parts.world.split([range(parts.world.size)]), flat.move)
    return Replica(parts, flat, mixing, Dealing(lockstep=True), parts.task)
