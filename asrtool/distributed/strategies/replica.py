"""Learners with weights of their own, and the rules that mix these weights.

A strategy is a LocalReplica with a MixingRule: gossip, delay_by_one, bmuf, hierarchical, or none.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from dataclasses import InitVar, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from asrtool.distributed.strategies.strategy import (
    ConsensusMetrics,
    Snapshot,
    StepCost,
    Strategy,
    StrategyContext,
    optimizer_and_update,
)
from asrtool.distributed.transport.device import clock_of
from asrtool.distributed.transport.view import Recorded, chunks_of
from asrtool.distributed.weights.flat import FlatWeights, synchronise_counters
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.errors import AsrtoolError


class MixingRule(ABC):
    """Rule by which a strategy mixes a learner's weights with others."""

    before_update = False  # a step mixes before the learner's own update
    asynchronous = False  # `record` waits for no other learner

    def start(self) -> None:
        """Prepare for the first step."""

    def changing(self) -> contextlib.AbstractContextManager[object]:
        """Return a context for the optimizer's changes of the weights."""
        return contextlib.nullcontext()

    @abstractmethod
    def mix(self) -> StepCost:
        """Mix the flat weights with others, once a step."""

    def begin(self) -> None:
        """Begin the exchange that runs while the next step computes."""

    def finish(self) -> None:
        """Finish the exchanges under way; all learners call this."""

    def record(self, cut: int) -> Recorded:
        """Return the mixed weights at `cut`, consistent with the records of others."""
        raise NotImplementedError  # LocalReplica refuses an asynchronous rule without it

    def give_back(self, values_P: Tensor) -> None:
        """Reuse the memory of a record, which is not read any more."""

    def adopt(self) -> int | None:
        """Take the weights of another learner, as Strategy.adopt does."""
        return None

    def join(self, cut: int) -> None:
        """Join at `cut`, as Strategy.join does."""

    def state(self) -> dict[str, Any]:
        """Return the state for `load_state`, without the weights."""
        return {}

    def shared_state(self) -> dict[str, Any]:
        """Return the part of the state that is the same at all learners."""
        return {}

    def load_state(self, state: dict[str, Any], shared: dict[str, Any]) -> None:
        """Continue from an earlier `state` and `shared_state`."""

    def close(self) -> None:
        """End threads and connections."""


@dataclass(eq=False)
class LocalReplica(Strategy):
    """A learner with its own weights and optimizer, which mixes its weights."""

    context: InitVar[StrategyContext]
    flat: FlatWeights
    mixing: MixingRule
    assignment_rule: AssignmentRule
    task: nn.Module

    def __post_init__(self, context: StrategyContext) -> None:
        """Raise AsrtoolError for an asynchronous rule that cannot record."""
        if self.mixing.asynchronous and type(self.mixing).record is MixingRule.record:
            what = f"{type(self.mixing).__name__} is asynchronous and has no `record`"
            raise AsrtoolError(what, "give it one, see docs/how-to/new-strategy.md, or leave `asynchronous` false")
        self.model = context.model
        self.world = context.world
        self.weight = 1 / context.world.size  # in the mean of all that began
        self.optimizer, self.update = optimizer_and_update(context)
        self.note = context.note
        self.asynchronous = self.mixing.asynchronous
        self.mean_P = self.flat.weights_P  # mean of all learners, from a synchronisation to the next step
        self.updates_S = torch.zeros_like(self.flat.sample(self.mean_P))
        self.recorded_S = torch.zeros_like(self.updates_S)  # the same at the last snapshot
        self.clock = clock_of(self.mean_P)

    def start(self) -> None:
        self.mixing.start()

    def step(self) -> tuple[float, StepCost]:
        self.mean_P = self.flat.weights_P  # gives the last one's memory back
        if self.mixing.before_update:
            self.flat.fetch_buffers()  # backward has left the weights as they were
            cost = self.mix()
            norm = self._update()
        else:
            norm = self._update()
            cost = self.mix()
        begin = self.clock.mark()
        self.mixing.begin()
        cost.comm_s += self.clock.seconds((begin, self.clock.mark()))[0]
        return norm, cost

    def mix(self) -> StepCost:
        """Mix the weights with others, in a step."""
        return self.mixing.mix()

    def finish(self) -> None:
        """Finish the exchanges under way; all learners call this."""
        self.mixing.finish()

    def _update(self) -> float:
        before_S = self.flat.sample(self.flat.weights_P)
        with self.mixing.changing():
            norm = self.update.step()
            self.note("update")
        self.flat.fetch_buffers()
        self.updates_S += self.flat.sample(self.flat.weights_P) - before_S
        return norm

    def synchronise(self) -> ConsensusMetrics:
        self.finish()
        synchronise_counters(self.model, self.world)
        self.mean_P = self.flat.weights_P.clone()
        self.world.mean(self.mean_P)
        own_W, mean_W = (values_P[: self.flat.num_weights] for values_P in (self.flat.weights_P, self.mean_P))
        distances = [(own - mean).norm() for own, mean in chunks_of(own_W, mean_W)]
        distance = float(torch.stack(distances).norm() / mean_W.norm())
        # The means of the squared distance and of the updates, in one collective.
        means = torch.cat([self.updates_S.flatten(), self.updates_S.new_tensor([distance**2])])
        self.world.mean(means)
        before_S, self.mean_S = self.mean_S, self.flat.sample(self.mean_P)
        drift = None
        if before_S is not None and not self.world.ranks:  # the mean without lost learners differs
            moved_S = self.mean_S - before_S - means[:-1].view_as(self.updates_S)
            drift = float(moved_S.norm() / self.mean_S.norm())
        self.updates_S.zero_()
        self.recorded_S.zero_()
        return ConsensusMetrics(math.sqrt(float(means[-1])), drift)

    def consensus(self) -> contextlib.AbstractContextManager[None]:
        return self.flat.moved(self.mean_P)

    def snapshot(self, cut: int) -> Snapshot:
        recorded = self.mixing.record(cut) if self.asynchronous else None
        before_S, self.recorded_S = self.recorded_S, self.updates_S.clone()
        return Snapshot(
            learner={"mixing": self.mixing.state(), "optimizer": self.optimizer.state_dict()},
            shared={"mixing": self.mixing.shared_state()},
            keeper=self.world.live[0],
            values_P=recorded.values_P if recorded else self.flat.weights_P.to("cpu", copy=True),
            weight=self.weight,
            updates_S=self.recorded_S - before_S,
            settled=recorded.settled.is_set if recorded else None,
        )

    def give_back(self, snapshot: Snapshot) -> None:
        if self.asynchronous and snapshot.values_P is not None:
            self.mixing.give_back(snapshot.values_P)

    def adopt(self) -> int | None:
        return self.mixing.adopt()

    def join(self, cut: int) -> None:
        self.mixing.join(cut)

    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        offset, values_P = learner["offset"], learner["values_P"]
        self.flat.weights_P[offset : offset + len(values_P)].copy_(values_P)
        self.optimizer.load_state_dict(learner["optimizer"])
        self.mixing.load_state(learner["mixing"], shared["mixing"])

    def load_optimizer(self, learner: dict[str, Any], shared: dict[str, Any]) -> bool:
        if "optimizer" in learner:
            self.optimizer.load_state_dict(learner["optimizer"])
        return "optimizer" in learner

    def close(self) -> None:
        self.mixing.close()


class NoMixing(MixingRule):
    """Mixing rule that leaves the weights of each learner as they are."""

    asynchronous = True

    def __init__(self, weights_P: Tensor) -> None:
        self.weights_P = weights_P

    def mix(self) -> StepCost:
        return StepCost()

    def record(self, cut: int) -> Recorded:
        recorded = Recorded(self.weights_P.to("cpu", copy=True))
        recorded.settled.set()
        return recorded


def independent(context: StrategyContext) -> Strategy:
    """Train learners that never exchange anything, to compare others with.

    Each trains its own weights on its part of the batches, w^i <- w^i - alpha g(w^i); their mean
    stands for all.
    """
    flat = FlatWeights(context.model)
    return LocalReplica(context, flat, NoMixing(flat.weights_P), AssignmentRule(), context.task)
