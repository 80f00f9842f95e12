"""Synchronous SGD: gradients are averaged while backward computes others.

w <- w - alpha mean_i g(w^i). Buffers are not broadcast: each learner keeps its own statistics, and
their mean stands for all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
import weakref
from typing import Any

import torch
import torch._dynamo  # DistributedDataParallel does when it is made, which is once learners are forked
import torch.distributed as collectives
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from asrtool.distributed.strategies.strategy import (
    ConsensusMetrics,
    Snapshot,
    StepCost,
    StrategyContext,
    SynchronousStrategy,
)
from asrtool.distributed.transport.device import clock_of
from asrtool.distributed.weights.flat import OwnStatistics
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.distributed.world import MESSAGE_TYPES, World, all_reduce_bytes


class AveragedGradients:
    """Average of the gradients of `task` over the learners of `world`.

    By torch's DistributedDataParallel (DDP). Gradients are divided in float32, then rounded to the
    type of messages and summed in it.
    """

    def __init__(self, task: nn.Module, world: World, message_type: torch.dtype) -> None:
        self.world = world
        self.message_type = message_type
        self.bare_task = self.task = task
        self.clock = clock_of(next(task.parameters()))
        self.last_ready = self.clock.mark()  # time of the last gradient
        self.num_bytes = 0
        if world.size > 1:
            with warnings.catch_warnings():  # a newer name of the option, unknown to earlier versions
                warnings.filterwarnings("ignore", ".*broadcast_buffers.*", FutureWarning)
                self.task = DistributedDataParallel(task, process_group=world.group, broadcast_buffers=False)
            # DDP keeps the hook where the garbage collector does not look: with a reference to this object it would
            # keep itself and the group of processes.
            own = weakref.proxy(self)
            self.task.register_comm_hook(None, lambda _, bucket: own._average(bucket))

    def start(self) -> None:
        """Run a backward: DDP then rebuilds its buckets, so a resumed run sums alike."""
        if self.world.size > 1:
            self.task(None).backward()
            self.task.zero_grad(set_to_none=True)
            self.num_bytes = 0

    def close(self) -> None:
        """Free DDP while others still refer to the group.

        If DDP is the last, it holds Python's lock and waits for a thread of gloo, which may wait
        for that lock.
        """
        self.task = self.bare_task

    def cost(self) -> StepCost:
        """Return the cost of the backward that has just ended."""
        if self.world.size == 1:
            return StepCost()
        num_bytes, self.num_bytes = self.num_bytes, 0
        (wait_s,) = self.clock.seconds((self.last_ready, self.clock.mark()))
        return StepCost(wait_s=wait_s, num_bytes=num_bytes)

    def _average(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        if bucket.is_last():
            self.last_ready = self.clock.mark()
        gradients = bucket.buffer()
        self.num_bytes += all_reduce_bytes(gradients, self.world, self.message_type)
        gradients /= self.world.size
        message = gradients.to(self.message_type)  # float32: the very same
        work = collectives.all_reduce(message, group=self.world.group, async_op=True)
        return work.get_future().then(lambda future: gradients.copy_(future.value()[0]))


class AllReduce(SynchronousStrategy):
    """A learner that has the same weights as all others."""

    def __init__(self, context: StrategyContext) -> None:
        self.gradients = AveragedGradients(context.task, context.world, MESSAGE_TYPES[context.settings.message_type])
        self.statistics = OwnStatistics(context.model, context.world)
        super().__init__(context, AssignmentRule(group_size=context.world.size, lockstep=True), self.gradients.task)

    def start(self) -> None:
        self.gradients.start()

    def step(self) -> tuple[float, StepCost]:
        cost = self.gradients.cost()
        norm, _ = super().step()
        return norm, cost

    def close(self) -> None:
        self.gradients.close()
        self.task = self.gradients.task

    def synchronise(self) -> ConsensusMetrics:
        self.statistics.synchronise()
        return super().synchronise()

    def consensus(self) -> contextlib.AbstractContextManager[None]:
        return self.statistics.consensus()

    def snapshot(self, cut: int) -> Snapshot:
        return dataclasses.replace(super().snapshot(cut), learner=self.statistics.state())

    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        super().load_state(learner, shared)
        self.statistics.load_state(learner)
