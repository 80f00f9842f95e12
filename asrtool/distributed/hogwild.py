"""Hogwild (Niu et al., arXiv 1106.5730): learners step on weights in shared memory, at any time, waiting for no other.

w <- w - alpha g(w), where every weight is read and written while others write theirs: some steps are made on weights
that are partly older, and one of two steps on the same weight at the same instant is lost. Each learner has an
optimizer of its own. Buffers lie in shared memory as well: each learner adds its batches to the same statistics.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from asrtool.distributed.buffers import synchronise_counters
from asrtool.distributed.flat import FlatWeights, are_on_host, views_of
from asrtool.distributed.shared_weights import SharedWeights
from asrtool.distributed.strategy import ConsensusMetrics, Snapshot, StepCost, Strategy, StrategyContext
from asrtool.distributed.synchronous import SynchronousStrategy
from asrtool.distributed.update import Update
from asrtool.distributed.work_queue import AssignmentRule
from asrtool.errors import AsrtoolError


class Hogwild(SynchronousStrategy):
    """The parameters and float buffers of all learners are views of the same memory."""

    asynchronous = True

    def __init__(self, context: StrategyContext) -> None:
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
        """The step of the optimizer; also on what others have recorded at cuts that this learner has not come to."""
        assert self.shared
        with self.shared.step() as records:
            if not records:
                self.optimizer.step()
                return
            update_W = self._update_of_copy()
            for values_P in (self.shared.weights_P, *records):
                values_P[: len(update_W)] += update_W

    def _update_of_copy(self) -> Tensor:
        """What the optimizer adds to the weights, found on a copy: others write those meanwhile."""
        parameters, num_weights = self.flat.parameters, self.flat.num_weights
        before_W = self.flat.weights_P[:num_weights].clone()
        after_W = before_W.clone()
        _lie_in(parameters, views_of(after_W, self.flat.sizes, parameters))
        self.optimizer.step()
        _lie_in(parameters, self.flat.views)
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


def _lie_in(parameters: list[torch.nn.Parameter], views: list[Tensor]) -> None:
    for parameter, view in zip(parameters, views, strict=False):
        parameter.data = view


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
