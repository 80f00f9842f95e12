"""Strategies: how learners train one model. The training loop calls a strategy and never asks which one it is."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from asrtool.distributed.buffers import synchronise_counters
from asrtool.distributed.clock import clock_of
from asrtool.distributed.flat import FlatWeights
from asrtool.distributed.update import NamedParameters, Update
from asrtool.distributed.view import Recorded
from asrtool.distributed.work_queue import AssignmentRule
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError


@dataclass
class StepCost:
    """What communication cost a learner in one step."""

    comm_s: float = 0.0  # its own work for it, on the thread that computes
    wait_s: float = 0.0  # waiting for others
    num_bytes: int = 0  # sent
    staleness: int = 0  # changes to the weights by others since the gradient was computed on them
    partners: Sequence[int] = ()  # with whom the exchanges begun here were done since the last step
    num_skipped: int = 0  # exchanges not begun, since the one before was still under way, or refused


@dataclass(frozen=True)
class ConsensusMetrics:
    """How far apart the weights of the learners are; buffers do not count."""

    distance: float  # root mean square over the learners of ||w - mean of w|| / ||mean of w||
    drift: float | None  # ||mean of w - (mean at the last synchronisation + mean of the updates)|| / ||mean of w||


@dataclass
class Snapshot:
    """A learner's part of a checkpoint, as it is between two of its steps.

    Tensors of `learner` and `shared` are those that training changes; `values_P` and `recorded` are copies on the host,
    whole once it is settled.
    """

    learner: dict[str, Any]  # what this learner has of its own
    shared: dict[str, Any] = field(default_factory=dict)  # what learner `keeper` has as well
    keeper: int = 0
    recorded: dict[str, Any] = field(default_factory=dict)  # what this learner has of its own as well
    values_P: Tensor | None = None  # of the flat weights from `offset` on; summed by `weight` they are the mean of all
    offset: int = 0
    weight: float = 1.0
    updates_S: Tensor | None = None  # a sample of what the optimizer has added since the last one, if it is known
    settled: Callable[[], bool] | None = None  # whether nothing changes `values_P` and `recorded` any more


@dataclass(frozen=True)
class StrategyContext:
    """What a strategy is built from."""

    task: nn.Module  # a batch -> its loss; None -> a zero loss that touches every parameter
    model: nn.Module  # whose weights `task` trains
    make_optimizer: Callable[[NamedParameters], torch.optim.Optimizer]
    clip_norm: float  # largest norm of the gradient
    settings: Any  # of the strategy
    seed: int
    world: World


class Strategy(ABC):
    """What a learner does with the gradients of a batch, and which weights stand for all learners.

    `task` is what the loop computes the loss with, `optimizer` where it sets the learning rate, `update` what computes
    the gradients and applies them.
    """

    assignment_rule: AssignmentRule
    task: nn.Module
    optimizer: torch.optim.Optimizer
    update: Update
    asynchronous: bool = False  # whether a learner takes its snapshots without waiting for others; it then has:
    flat: FlatWeights  # of the weights that snapshots have values of
    mean_S: Tensor | None = None  # a sample of the mean of all learners when they last synchronised

    def start(self) -> None:
        """Before the first step of this process, after `load_state`."""

    @abstractmethod
    def step(self) -> tuple[float, StepCost]:
        """Update the weights from the gradients that `backward` left, then clear those.

        Returns the gradient norm before clipping. When it is not finite the weights stay as they were; when it is
        zero there was nothing to learn, and the optimizer keeps its momentum.
        """

    @abstractmethod
    def synchronise(self) -> ConsensusMetrics:
        """All learners have ended the same steps: finish what is under way, and compute the mean.

        The mean is that of weights and buffers; buffers of whole numbers become the largest of any learner.
        """

    @abstractmethod
    def consensus(self) -> contextlib.AbstractContextManager[None]:
        """After `synchronise`: inside, the model holds the weights and buffers that stand for all learners."""

    @abstractmethod
    def snapshot(self, cut: int) -> Snapshot:
        """What this learner needs to resume, beside the weights that stand for all.

        Between two steps at a cut, its number counted from 1 where training began or resumed; where the strategy is not
        `asynchronous`, after `synchronise`.
        """

    def give_back(self, snapshot: Snapshot) -> None:
        """`values_P` of `snapshot` are not read any more."""

    def adopt(self) -> int | None:
        """Instead of the first `synchronise`, where this learner joins others: take the weights of one; its rank.

        None where learners exchange none. Raises Ended where there is none any more.
        """
        return None

    def join(self, cut: int) -> None:
        """After `adopt`: the next snapshot is of a cut behind `cut`."""

    @abstractmethod
    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        """Continue from those of a snapshot, once the model holds the weights that stood for all."""

    def load_shared(self, shared: dict[str, Any]) -> bool:
        """The same where there were other learners: whether there was anything to load."""
        return False

    def end_steps(self) -> None:
        """After the last step, where learners were lost and collectives are to be those of the others."""

    def close(self) -> None:
        """End threads and connections."""


class MixingRule(ABC):
    """How a learner's weights are mixed with those of others, beside its own update: the rule of a strategy."""

    before_update = False  # whether a step mixes before the learner's own update
    asynchronous = False  # whether `record` waits for nobody

    def start(self) -> None:
        """Before the first step."""

    @abstractmethod
    def mix(self) -> StepCost:
        """Once a step: mix the flat weights with those of others."""

    def begin(self) -> None:
        """At the end of a step: begin what runs while the next one computes."""

    def finish(self) -> None:
        """All learners call this: finish what is under way."""

    def record(self, cut: int) -> Recorded:
        """The mixed weights at `cut`, to be consistent with what others record there. For asynchronous ones."""
        raise NotImplementedError

    def give_back(self, values_P: Tensor) -> None:
        """What was recorded is not read any more."""

    def adopt(self) -> int | None:
        """As that of a strategy."""
        return None

    def join(self, cut: int) -> None:
        """As that of a strategy."""

    def state(self) -> dict[str, Any]:
        """What `load_state` needs beside the weights."""
        return {}

    def shared_state(self) -> dict[str, Any]:
        """The same, as far as all learners have it alike."""
        return {}

    def load_state(self, state: dict[str, Any], shared: dict[str, Any]) -> None:
        """Continue from `state` and `shared`, which are those of before."""

    def close(self) -> None:
        """End threads and connections."""


class LocalReplica(Strategy):
    """A learner with weights and an optimizer of its own, that mixes its weights with those of others."""

    def __init__(
        self,
        context: StrategyContext,
        flat: FlatWeights,
        mixing: MixingRule,
        assignment_rule: AssignmentRule,
        task: nn.Module,
    ) -> None:
        self.assignment_rule = assignment_rule
        self.task = task
        self.model = context.model
        self.world = context.world
        self.weight = 1 / context.world.size  # in the mean of all that began
        self.optimizer, self.update = optimizer_and_update(context)
        self.flat = flat
        self.mixing = mixing
        self.asynchronous = mixing.asynchronous
        self.mean_P = flat.weights_P  # of all learners, from a synchronisation to the next step
        self.updates_S = torch.zeros_like(self.flat.sample(flat.weights_P))
        self.recorded_S = torch.zeros_like(self.updates_S)  # the same at the last snapshot
        self.clock = clock_of(flat.weights_P)

    def start(self) -> None:
        self.mixing.start()

    def step(self) -> tuple[float, StepCost]:
        self.mean_P = self.flat.weights_P  # gives the last one's memory back
        if self.mixing.before_update:
            self.flat.fetch_buffers()  # backward has left the weights as they were
            cost = self.mixing.mix()
            norm = self._update()
        else:
            norm = self._update()
            cost = self.mixing.mix()
        begin = self.clock.mark()
        self.mixing.begin()
        cost.comm_s += self.clock.seconds((begin, self.clock.mark()))[0]
        return norm, cost

    def _update(self) -> float:
        before_S = self.flat.sample(self.flat.weights_P)
        norm = self.update.step()
        self.flat.fetch_buffers()
        self.updates_S += self.flat.sample(self.flat.weights_P) - before_S
        return norm

    def synchronise(self) -> ConsensusMetrics:
        self.mixing.finish()
        synchronise_counters(self.model, self.world)
        self.mean_P = self.flat.weights_P.clone()
        self.world.mean(self.mean_P)
        own_W, mean_W = (values_P[: self.flat.num_weights] for values_P in (self.flat.weights_P, self.mean_P))
        norm = float(mean_W.norm())
        squares = self.world.sum(float((own_W - mean_W).norm()) ** 2)[0]
        return ConsensusMetrics(math.sqrt(squares / self.world.size) / norm, self._drift(self.flat.sample(self.mean_P)))

    @contextlib.contextmanager
    def consensus(self) -> Iterator[None]:
        own_P = self.flat.weights_P.clone()
        self.flat.weights_P.copy_(self.mean_P)
        try:
            yield
        finally:  # a learner may be asked to stop while it evaluates
            self.flat.weights_P.copy_(own_P)

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

    def close(self) -> None:
        self.mixing.close()

    def _drift(self, mean_S: Tensor) -> float | None:
        updates_S = self.updates_S.clone()
        self.world.mean(updates_S)
        before_S, self.mean_S = self.mean_S, mean_S
        self.updates_S.zero_()
        self.recorded_S.zero_()
        if before_S is None or self.world.ranks:  # without those that were lost the mean is another
            return None
        return float((mean_S - before_S - updates_S).norm() / mean_S.norm())


class SynchronousStrategy(Strategy):
    """Weights that are the same at all learners, by averaged gradients, or because there is one learner."""

    def __init__(self, context: StrategyContext, assignment_rule: AssignmentRule, task: nn.Module) -> None:
        self.assignment_rule = assignment_rule
        self.task = task
        self.optimizer, self.update = optimizer_and_update(context)

    def step(self) -> tuple[float, StepCost]:
        return self.update.step(), StepCost()

    def synchronise(self) -> ConsensusMetrics:
        return ConsensusMetrics(0.0, 0.0)

    def consensus(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def snapshot(self, cut: int) -> Snapshot:
        return Snapshot(learner={}, shared={"optimizer": self.optimizer.state_dict()})

    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        self.load_shared(shared)

    def load_shared(self, shared: dict[str, Any]) -> bool:
        self.optimizer.load_state_dict(shared["optimizer"])
        return True


def single(context: StrategyContext) -> Strategy:
    """One learner: w <- w - alpha g(w). AsrtoolError where there are more."""
    if context.world.size > 1:
        raise AsrtoolError(
            f"strategy single with {context.world.size} learners",
            "choose another --strategy, for example adpsgd-random",
        )
    return SynchronousStrategy(context, AssignmentRule(), context.task)


def optimizer_and_update(context: StrategyContext) -> tuple[torch.optim.Optimizer, Update]:
    """An optimizer of the whole model, and the update that it makes."""
    optimizer = context.make_optimizer(list(context.model.named_parameters()))
    return optimizer, Update(list(context.model.parameters()), optimizer, context.clip_norm)
