"""Strategies: how learners train one model. The training loop calls a strategy and never asks which one it is."""

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
    loss_scale: LossScale | None = None  # of half precision
    note: Note = no_note  # of what happens to weights


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
    same_weights: bool = False  # whether the learners of one `keeper` have the same weights after each step
    ema: Ema | None = None  # of this learner's weights, where one is wanted

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

    def take_snapshot(self, cut: int) -> Snapshot:
        """That of `snapshot`, with what the update needs beside it, and the average over time."""
        snapshot = self.snapshot(cut)
        if self.ema:
            snapshot.learner["ema"], of_weights = self.ema.state()
            (snapshot.shared if self.same_weights else snapshot.learner)["ema_weights"] = of_weights
        if self.update.loss_scale:
            snapshot.recorded["loss_scale"] = self.update.loss_scale.state()
        return snapshot

    def load_loss_scale(self, learner: dict[str, Any]) -> None:
        """That of a snapshot, where both have one; also where there were other learners."""
        if self.update.loss_scale and "loss_scale" in learner:
            self.update.loss_scale.load_state(learner["loss_scale"])

    def load_ema(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        """That of a snapshot, where both have one."""
        if self.ema and "ema" in learner:
            self.ema.load_state(learner["ema"], (learner | shared)["ema_weights"])

    def give_back(self, snapshot: Snapshot) -> None:
        """`values_P` of `snapshot` are not read any more."""

    def adopt(self) -> int | None:
        """Instead of the first `synchronise`, where this learner joins others: take the weights of one; its rank.

        None where learners exchange none. Raises TrainingEnded where there is none any more.
        """
        return None

    def join(self, cut: int) -> None:
        """After `adopt`: the next snapshot is of a cut behind `cut`."""

    @abstractmethod
    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        """Continue from those of a snapshot, once the model holds the weights that stood for all."""

    def load_optimizer(self, learner: dict[str, Any], shared: dict[str, Any]) -> bool:
        """The optimizer alone, where there were other learners: whether there was one in what one of them had."""
        return False

    def end_steps(self) -> None:
        """After the last step, where learners were lost and collectives are to be those of the others."""

    def close(self) -> None:
        """End threads and connections."""


def optimizer_and_update(context: StrategyContext) -> tuple[torch.optim.Optimizer, Update]:
    """An optimizer of the model, and the update that it makes."""
    named_parameters = trained_parameters(context.model)
    optimizer = context.make_optimizer(named_parameters)
    parameters = [parameter for _, parameter in named_parameters]
    return optimizer, Update(parameters, optimizer, context.clip_norm, loss_scale=context.loss_scale)
