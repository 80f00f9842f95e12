"""Strategies: rules by which learners train one model.

The training loop calls every strategy in the same way. The simplest is here: learners that have the
same weights at every step, or one alone.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from asrtool.distributed.strategies.update import LossScale, NamedParameters, Update, trained_parameters
from asrtool.distributed.transport.event_log import Note, no_note
from asrtool.distributed.weights.ema import Ema
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError


@dataclass
class StepCost:
    """Cost of communication for a learner in one step."""

    comm_s: float = 0.0  # its own work for it, on the thread that computes
    wait_s: float = 0.0  # waiting for others
    num_bytes: int = 0  # sent
    staleness: int = 0  # changes to the weights by others since the gradient was computed on them
    partners: Sequence[int] = ()  # with whom the exchanges begun here were done since the last step
    num_skipped: int = 0  # exchanges not begun, since the one before was still under way, or refused


@dataclass(frozen=True)
class ConsensusMetrics:
    """Distance between the weights of the learners; buffers do not count."""

    distance: float  # root mean square over the learners of ||w - mean of w|| / ||mean of w||
    drift: float | None  # ||mean of w - (mean at the last synchronisation + mean of the updates)|| / ||mean of w||


@dataclass
class Snapshot:
    """A learner's part of a checkpoint, as it is between two of its steps.

    Training changes the tensors of `learner` and `shared`. `values_P` and `recorded` are copies on
    the host, complete once the snapshot is settled.
    """

    learner: dict[str, Any]  # this learner's own state
    shared: dict[str, Any] = field(default_factory=dict)  # state that is the same at learner `keeper`
    keeper: int = 0
    recorded: dict[str, Any] = field(default_factory=dict)  # more of this learner's own state, complete once settled
    values_P: Tensor | None = None  # flat weights from `offset` on; their sum over learners by `weight` is the mean
    offset: int = 0
    weight: float = 1.0
    updates_S: Tensor | None = None  # a sample of the optimizer's updates since the last one, if known
    settled: Callable[[], bool] | None = None  # returns True once nothing changes `values_P` and `recorded` any more


@dataclass(frozen=True)
class StrategyContext:
    """Inputs of a strategy."""

    task: nn.Module  # a batch -> its loss; None -> a zero loss that touches every parameter
    model: nn.Module  # with the weights that `task` trains
    make_optimizer: Callable[[NamedParameters], torch.optim.Optimizer]
    clip_norm: float  # largest norm of the gradient
    settings: Any  # settings of the strategy
    seed: int
    world: World
    loss_scale: LossScale | None = None  # loss scale of half precision
    note: Note = no_note  # logs changes to weights


class Strategy(ABC):
    """Use of a batch's gradients by a learner, and the weights that stand for all.

    The loop computes the loss with `task`, sets the learning rate in `optimizer`, and computes and
    applies gradients by `update`.
    """

    assignment_rule: AssignmentRule
    task: nn.Module
    optimizer: torch.optim.Optimizer
    update: Update
    asynchronous: bool = False  # learners take snapshots without waiting for others; they then have:
    flat: FlatWeights  # flat weights that snapshots have values of
    mean_S: Tensor | None = None  # a sample of the mean of all learners when they last synchronised
    same_weights: bool = False  # learners of one `keeper` have the same weights after each step
    ema: Ema | None = None  # EMA of this learner's weights, if wanted

    def start(self) -> None:
        """Prepare for the first step of this process, after `load_state`."""

    @abstractmethod
    def step(self) -> tuple[float, StepCost]:
        """Update the weights from the gradients that `backward` left, then clear them.

        Returns the gradient norm before clipping. If it is not finite, the weights stay as they
        were. If it is zero there was nothing to learn, and the optimizer keeps its momentum.
        """

    @abstractmethod
    def synchronise(self) -> ConsensusMetrics:
        """Finish exchanges, and compute the mean of weights and buffers.

        All learners call this after the same steps. Integer buffers become the largest of any
        learner.
        """

    @abstractmethod
    def consensus(self) -> contextlib.AbstractContextManager[None]:
        """Put the weights that stand for all in the model, after `synchronise`."""

    @abstractmethod
    def snapshot(self, cut: int) -> Snapshot:
        """Return the state that this learner needs to resume.

        Without the weights that stand for all. Called between two steps at a cut, whose number
        counts from 1 since training began or resumed; after `synchronise` if the strategy is not
        `asynchronous`.
        """

    def take_snapshot(self, cut: int) -> Snapshot:
        """Return `snapshot` with the state of the update and of the average over time."""
        snapshot = self.snapshot(cut)
        if self.ema:
            snapshot.learner["ema"], weights_state = self.ema.state()
            (snapshot.shared if self.same_weights else snapshot.learner)["ema_weights"] = weights_state
        if self.update.loss_scale:
            snapshot.recorded["loss_scale"] = self.update.loss_scale.state()
        return snapshot

    def load_loss_scale(self, learner: dict[str, Any]) -> None:
        """Load the loss scale of a snapshot, if both have one; also with other learners."""
        if self.update.loss_scale and "loss_scale" in learner:
            self.update.loss_scale.load_state(learner["loss_scale"])

    def load_ema(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        """Load the average over time of a snapshot, if both have one."""
        if self.ema and "ema" in learner:
            self.ema.load_state(learner["ema"], (learner | shared)["ema_weights"])

    def give_back(self, snapshot: Snapshot) -> None:
        """Reuse the memory of `values_P` of `snapshot`."""

    def adopt(self) -> int | None:
        """Take the weights of another learner, if this one joins; return its rank.

        Called instead of the first `synchronise`. None if learners exchange no weights. Raises
        TrainingEnded if no other learner is left.
        """
        return None

    def join(self, cut: int) -> None:
        """Join after `adopt`: the next snapshot is of a cut after `cut`."""

    @abstractmethod
    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        """Continue from a snapshot; the model already has the weights that stood for all."""

    def load_optimizer(self, learner: dict[str, Any], shared: dict[str, Any]) -> bool:
        """Load the optimizer of a snapshot with other learners, if it has one."""
        return False

    def end_steps(self) -> None:
        """Prepare for collectives of other groups, after learners were lost."""

    def close(self) -> None:
        """End threads and connections."""


def optimizer_and_update(context: StrategyContext) -> tuple[torch.optim.Optimizer, Update]:
    """Make an optimizer of the model, and the update that uses it."""
    named_parameters = trained_parameters(context.model)
    optimizer = context.make_optimizer(named_parameters)
    parameters = [parameter for _, parameter in named_parameters]
    return optimizer, Update(parameters, optimizer, context.clip_norm, loss_scale=context.loss_scale)


class SynchronousStrategy(Strategy):
    """A learner with the same weights as all others, or the only one."""

    same_weights = True

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
        self.load_optimizer(learner, shared)

    def load_optimizer(self, learner: dict[str, Any], shared: dict[str, Any]) -> bool:
        self.optimizer.load_state_dict(shared["optimizer"])
        return True


def single(context: StrategyContext) -> Strategy:
    """One learner: w <- w - alpha g(w).

    Raises AsrtoolError if there are more.
    """
    if context.world.size > 1:
        raise AsrtoolError(
            f"strategy single with {context.world.size} learners",
            "choose another --strategy, for example adpsgd-random",
        )
    return SynchronousStrategy(context, AssignmentRule(), context.task)
