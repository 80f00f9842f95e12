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

from asrtool.distributed.flat import FlatWeights
from asrtool.distributed.strategy import LocalReplica, MixingRule, StepCost, Strategy, StrategyContext
from asrtool.distributed.timeout import TIMEOUT_S
from asrtool.distributed.work_queue import AssignmentRule
from asrtool.distributed.world import World, all_reduce_bytes


class DelayByOne(MixingRule):
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

    def mix(self) -> StepCost:
        begin = time.perf_counter()
        self.finish()
        waited = time.perf_counter()
        if self.move:
            self.move(self.mean_P)
            self.weights_P, self.mean_P = self.mean_P, self.weights_P
        else:
            self.weights_P.copy_(self.mean_P)
        return StepCost(time.perf_counter() - waited, waited - begin, all_reduce_bytes(self.mean_P, self.world))

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
        """Where this learner fails, the others have yet to join the mean; ending within it would abort the process."""
        self.asked.put(False)
        if self.thread.is_alive():
            self.thread.join(TIMEOUT_S)

    def _serve(self) -> None:
        while self.asked.get():
            try:
                self.mean_P.copy_(self.weights_P)
                self.world.mean(self.mean_P)
            except Exception as error:  # whatever it is: the computing thread would wait for ever
                self.taken.put(error)
            else:
                self.taken.put(None)


def delay_by_one(context: StrategyContext) -> Strategy:
    flat = FlatWeights(context.model)
    mixing = DelayByOne(flat.weights_P, context.world.split([range(context.world.size)]), flat.move)
    return LocalReplica(context, flat, mixing, AssignmentRule(lockstep=True), context.task)
