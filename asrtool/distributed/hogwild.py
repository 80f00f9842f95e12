"""Hogwild (Niu et al., arXiv 1106.5730): learners step on weights in shared memory, at any time and without locks.

w <- w - alpha g(w), where every weight is read and written while others write theirs: some steps are made on weights
that are partly older, and one of two steps on the same weight at the same instant is lost. Each learner has an
optimizer of its own. Buffers lie in shared memory as well: each learner adds its batches to the same statistics.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import torch
from torch import Tensor

from asrtool.distributed.buffers import synchronise_counters
from asrtool.distributed.flat import FlatWeights, are_on_host
from asrtool.distributed.strategy import (
    ConsensusMetrics,
    Snapshot,
    StepCost,
    Strategy,
    StrategyContext,
    SynchronousStrategy,
)
from asrtool.distributed.work_queue import AssignmentRule
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError


class Hogwild(SynchronousStrategy):
    """The parameters and float buffers of all learners are views of the same memory."""

    def __init__(self, context: StrategyContext) -> None:
        self.flat = FlatWeights(context.model)
        super().__init__(context, AssignmentRule(), context.task)
        self.model = context.model
        self.world = context.world
        self.num_others = 0  # steps of others when this learner made its last one

    def start(self) -> None:
        """Begin with the weights of learner 0."""
        weights_P = shared_zeros(self.world, len(self.flat.weights_P), torch.float32)
        self.steps_L = shared_zeros(self.world, self.world.size, torch.int64)
        if self.world.rank == 0:
            weights_P.copy_(self.flat.weights_P)
        self.world.barrier()
        self.flat.move(weights_P)

    def step(self) -> tuple[float, StepCost]:
        norm, _ = super().step()
        self.flat.fetch_buffers()
        self.steps_L[self.world.rank] = self.update.num_steps
        before, self.num_others = self.num_others, self._count_others()
        return norm, StepCost(staleness=self.num_others - before)

    def synchronise(self) -> ConsensusMetrics:
        self.world.barrier()
        synchronise_counters(self.model, self.world)
        self.num_others = self._count_others()
        self.world.barrier()
        return ConsensusMetrics(0.0, None)

    def snapshot(self, cut: int) -> Snapshot:
        return dataclasses.replace(super().snapshot(cut), keeper=self.world.rank)

    def load_shared(self, shared: dict[str, Any]) -> bool:
        return False

    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(shared["optimizer"])

    def _count_others(self) -> int:
        return int(self.steps_L.sum() - self.steps_L[self.world.rank])


def shared_zeros(world: World, num_values: int, dtype: torch.dtype) -> Tensor:
    """`num_values` zeros in memory that all learners of `world` read and write.

    It has no name in any folder, so the system frees it once the last of them exits, however it exits, and it may be
    larger than /dev/shm.
    """
    path = ""
    if world.rank == 0:
        file = os.memfd_create("asrtool")
        path = f"/proc/{os.getpid()}/fd/{file}"
    path = world.gather(path)[0]
    values = torch.from_file(path, shared=True, size=num_values, dtype=dtype)
    world.barrier()
    if world.rank == 0:
        os.close(file)
    return values


def hogwild(context: StrategyContext) -> Strategy:
    """Asynchronous SGD in shared memory, without locks.

    AsrtoolError where the learners are not on one machine, or compute on GPUs.
    """
    world = context.world
    if world.local_size != world.size:
        raise AsrtoolError(
            f"strategy hogwild with {world.size} learners, {world.local_size} of them on this machine",
            "hogwild needs shared memory: start all on one machine, or choose another --strategy, for example ps-async",
        )
    if not are_on_host(context.model.parameters()):
        raise AsrtoolError(
            "strategy hogwild where torch sees a GPU",
            "hogwild needs weights in shared memory of the host: set CUDA_VISIBLE_DEVICES= to train on the CPU",
        )
    return Hogwild(context)
