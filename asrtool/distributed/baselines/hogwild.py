"""Hogwild (Niu et al., arXiv 1106.5730): steps on weights in shared memory.

w <- w - alpha g(w), at any time, without waiting for others. A weight is read and written while
others write theirs. So some steps are made on weights that are partly older, and of two steps on
the same weight at the same instant one is lost. Each learner has an optimizer of its own. Buffers
lie in shared memory as well: each learner adds its batches to the same statistics.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
from collections.abc import Iterator

import torch
from torch import Tensor

from asrtool.distributed.strategies.strategy import (
    ConsensusMetrics,
    Snapshot,
    StepCost,
    StrategyContext,
    SynchronousStrategy,
)
from asrtool.distributed.strategies.update import Update
from asrtool.distributed.weights.flat import FlatWeights, synchronise_counters, views_of
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.files import open_memory_file


class SharedWeights:
    """Weights in shared memory, at first those that learner 0 has, and their records."""

    def __init__(self, world: World, weights_P: Tensor) -> None:
        """Open the memory; all learners call this."""
        self.world = world
        num_bytes, size = weights_P.nbytes, world.size  # a multiple of 64
        num_shared = num_bytes + 8 * (2 * size + 1)
        file = open_memory_file(num_shared) if world.rank == 0 else -1
        path = world.gather(_path_of(file))[0]
        shared = torch.from_file(path, shared=True, size=num_shared, dtype=torch.uint8)
        self.weights_P = shared[:num_bytes].view(torch.float32)
        self.steps_L, self.passed_L, self.newest_1 = shared[num_bytes:].view(torch.int64).split([size, size, 1])
        self.lock = os.open(path, os.O_RDWR)  # each learner needs to have opened the file for itself
        if world.rank == 0:
            self.weights_P.copy_(weights_P)
        world.barrier()
        if world.rank == 0:
            os.close(file)
        self._made: dict[int, int] = {}  # cut -> the file that this learner has made
        self._records: dict[int, Tensor] = {}  # by cut, that this learner has opened

    @contextlib.contextmanager
    def step(self) -> Iterator[list[Tensor]]:
        """Yield the records to add the step to as well; nothing is recorded meanwhile."""
        with self._locked(fcntl.LOCK_SH):
            passed, newest = int(self.passed_L[self.world.rank]), int(self.newest_1)
            yield [self._record(cut) for cut in range(passed + 1, newest + 1)]

    def record(self, cut: int) -> Tensor | None:
        """Reach `cut`; return the record at learner 0, complete once `is_settled`."""
        with self._locked(fcntl.LOCK_EX):
            if self.newest_1 < cut:
                file = self._made[cut] = os.memfd_create("asrtool")
                self.world.store.set(f"shared/{cut}", _path_of(file))
                self._record(cut).copy_(self.weights_P)
                self.newest_1.fill_(cut)
            found = self._record(cut) if self.world.rank == 0 else None
            self.passed_L[self.world.rank] = cut
        self._records.pop(cut, None)
        for old in [old for old in self._made if self.is_settled(old)]:
            os.close(self._made.pop(old))
        return found

    def is_settled(self, cut: int) -> bool:
        """Return whether all learners have reached `cut`."""
        return bool((self.passed_L >= cut).all())

    def close(self) -> None:
        """Close the files that this learner has open."""
        for file in (self.lock, *self._made.values()):
            os.close(file)

    def _record(self, cut: int) -> Tensor:
        if cut not in self._records:
            path = self.world.store.get(f"shared/{cut}").decode()
            self._records[cut] = torch.from_file(path, shared=True, size=len(self.weights_P), dtype=torch.float32)
        return self._records[cut]

    @contextlib.contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        fcntl.flock(self.lock, kind)
        try:
            yield
        finally:
            fcntl.flock(self.lock, fcntl.LOCK_UN)


def _path_of(file: int) -> str:
    """Return the path of a file in memory, for other processes.

    The file has no name in any folder, so the system frees it after the last of them exits, however
    it exits. It may be larger than /dev/shm.
    """
    return f"/proc/{os.getpid()}/fd/{file}"


class Hogwild(SynchronousStrategy):
    """A learner whose parameters and float buffers are views of shared memory."""

    asynchronous = True

    def __init__(self, context: StrategyContext) -> None:
        """Raise AsrtoolError if learners are on several machines or compute on GPUs."""
        size, local_size = context.world.size, context.world.local_size
        if local_size != size:
            raise AsrtoolError(
                f"strategy hogwild with {size} learners, {local_size} of them on this machine",
                "hogwild needs shared memory: start all on one machine, or choose another --strategy, for example "
                "ps-async",
            )
        if any(parameter.device.type != "cpu" for parameter in context.model.parameters()):
            raise AsrtoolError(
                "strategy hogwild where torch sees a GPU",
                "hogwild needs weights in shared memory of the host: set CUDA_VISIBLE_DEVICES= to train on the CPU",
            )
        self.flat = FlatWeights(context.model)
        super().__init__(context, AssignmentRule(), context.task)
        self.update = Update(self.flat.parameters, self.optimizer, context.clip_norm, self._apply, context.loss_scale)
        self.model = context.model
        self.world = context.world
        self.shared: SharedWeights | None = None
        self.num_others = 0  # steps of others when this learner made its last one

    def start(self) -> None:
        """Begin with the weights of learner 0."""
        self.shared = SharedWeights(self.world, self.flat.weights_P)
        self.flat.move(self.shared.weights_P)

    def step(self) -> tuple[float, StepCost]:
        assert self.shared
        norm, _ = super().step()
        self.flat.fetch_buffers()
        self.shared.steps_L[self.world.rank] = self.update.num_steps
        before, self.num_others = self.num_others, self._count_others()
        return norm, StepCost(staleness=self.num_others - before)

    def _apply(self) -> None:
        """Make a step of the optimizer, also on the records that lack it."""
        assert self.shared
        with self.shared.step() as records:
            if not records:
                self.optimizer.step()
                return
            update_W = self._update_of_copy()
            for values_P in (self.shared.weights_P, *records):
                values_P[: len(update_W)] += update_W

    def _update_of_copy(self) -> Tensor:
        """Compute the optimizer's update on a copy: others write the weights meanwhile."""
        parameters, num_weights = self.flat.parameters, self.flat.num_weights
        before_W = self.flat.weights_P[:num_weights].clone()
        after_W = before_W.clone()
        for parameter, view in zip(parameters, views_of(after_W, self.flat.sizes, parameters), strict=True):
            parameter.data = view
        self.optimizer.step()
        for parameter, view in zip(parameters, self.flat.views, strict=False):  # buffers follow
            parameter.data = view
        return after_W - before_W

    def synchronise(self) -> ConsensusMetrics:
        self.world.barrier()
        synchronise_counters(self.model, self.world)
        self.num_others = self._count_others()
        self.world.barrier()
        return ConsensusMetrics(0.0, None)

    def snapshot(self, cut: int) -> Snapshot:
        assert self.shared
        snapshot = super().snapshot(cut)
        snapshot.keeper = self.world.rank
        if cut:
            snapshot.values_P = self.shared.record(cut)
            snapshot.settled = functools.partial(self.shared.is_settled, cut)
        return snapshot

    def close(self) -> None:
        if self.shared:
            self.shared.close()

    def _count_others(self) -> int:
        assert self.shared
        return int(self.shared.steps_L.sum() - self.shared.steps_L[self.world.rank])
