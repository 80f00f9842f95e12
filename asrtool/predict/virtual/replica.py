"""Weights of virtual learners, batches of their steps, interface of strategies."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from asrtool.distributed.strategies.strategy import ConsensusMetrics
from asrtool.distributed.strategies.update import NamedParameters, Update, trained_parameters
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.work.work_queue import AssignmentRule, BatchNumber
from asrtool.predict.simulate.events import Begin, Event
from asrtool.settings.train import Optimisation
from asrtool.train.batches.batch import Augment, TrainingBatch, prepare_batch
from asrtool.train.batches.plan import Place, Plan
from asrtool.train.batches.source import BatchSource
from asrtool.train.checkpoints.checkpoint import State
from asrtool.train.loop.gradient_accumulation import GradientAccumulation
from asrtool.train.optimisation.learning_rate import LearningRates
from asrtool.train.optimisation.optimizer import set_learning_rate


@dataclass
class VirtualStep:
    """A step of a virtual learner, as far as it is computed."""

    begin: Begin
    after: Place  # place after its round
    num_samples: int = 0
    batch: TrainingBatch | None = None
    nats: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    grad_norm: float = 0.0
    staleness: int = 0

    @property
    def number(self) -> BatchNumber | None:
        """Number of the batch; None if the last round of an epoch has none left."""
        return None if self.begin.position is None else BatchNumber(self.begin.epoch, self.begin.position)


@dataclass
class StepPlan:
    """Batches of steps and their learning rate, as in asrtool.train.loop.loop."""

    settings: Optimisation
    source: BatchSource
    augment: Augment | None
    rates: LearningRates
    rule: AssignmentRule
    num_learners: int
    dev_losses: list[float] = field(default_factory=list)  # known by now

    def __post_init__(self) -> None:
        self.plan = Plan(self.source, self.settings.num_epochs, self.rule.round_size(self.num_learners), State())

    def trained(self, begin: Begin) -> VirtualStep:
        """Return the step that a learner begins, before its batch is read."""
        found = self.plan.round(begin.number)
        assert found, f"round {begin.number} is after the last one"
        return VirtualStep(begin, self.plan.place(found.epoch, found.slots.stop))

    def rate(self, trained: VirtualStep) -> float:
        """Return the learning rate of a step."""
        return self.rates.after(trained.after.samples, self.dev_losses if self.rates.needs_dev else ())

    def divisor(self, group: Sequence[VirtualStep]) -> float:
        """Return the divisor of the loss of each learner of a sync group."""
        numbers = (trained.number for trained in group)
        group_normaliser = sum(self.plan.planned(number.epoch, number).normaliser for number in numbers if number)
        return max(group_normaliser / self.rule.group_size, 1)

    def read(self, trained: VirtualStep) -> None:
        """Read the batch of a step, with masks and dropout drawn by its place."""
        if number := trained.number:
            planned = self.plan.planned(number.epoch, number)
            trained.batch, trained.num_samples = self.source.read(planned), planned.num_samples
            prepare_batch(trained.batch, self.settings.seed, self.plan.number(number), self.augment)


@dataclass
class SharedModel:
    """Model, and the objects that all learners share."""

    task: nn.Module  # a batch -> its loss
    model: nn.Module  # whose weights `task` trains
    flat: FlatWeights  # flat weights of `model`
    accumulation: GradientAccumulation
    make_optimizer: Callable[[NamedParameters], torch.optim.Optimizer]
    clip_norm: float
    step_plan: StepPlan = field(init=False)  # steps of all learners by the rule of their strategy

    def __post_init__(self) -> None:
        self.start_P = self.flat.weights_P.clone()


class Replica:
    """Weights and optimizer of `members`, learners that average their gradients.

    The values after the weights are batch statistics. Each member changes its own. `weights_P` has their mean,
    which all have before the next step if they `share_statistics`.
    """

    def __init__(self, shared: SharedModel, members: Sequence[int], share_statistics: bool = True) -> None:
        self.shared, self.members, self.share_statistics = shared, members, share_statistics
        self.weights_P = shared.start_P.clone()
        named_parameters = trained_parameters(shared.model)
        self.parameters = [parameter for _, parameter in named_parameters]
        self.task = shared.task
        self.optimizer = shared.make_optimizer(named_parameters)
        self.update = Update(self.parameters, self.optimizer, shared.clip_norm)
        self.statistics = [self.buffers_B.clone() for _ in members]

    @property
    def buffers_B(self) -> Tensor:
        """Statistics, in `weights_P`."""
        return self.weights_P[self.shared.flat.num_weights :]

    def compute(self, group: Sequence[VirtualStep]) -> None:
        """Leave the mean gradient of the members' steps at `weights_P` in the model."""
        flat, step_plan = self.shared.flat, self.shared.step_plan
        flat.move(self.weights_P)
        set_learning_rate(self.optimizer, step_plan.rate(group[0]))
        divisor = step_plan.divisor(group)
        for own_B in self.statistics if self.share_statistics else ():
            own_B.copy_(self.buffers_B)
        for own_B, trained in zip(self.statistics, group, strict=True):
            step_plan.read(trained)
            self.buffers_B.copy_(own_B)
            if trained.batch is not None:
                computed = self.shared.accumulation.backward(self, trained.batch, divisor, lambda: None)
                trained.nats, trained.figures = float(computed.nats), computed.figures
            flat.fetch_buffers()
            own_B.copy_(self.buffers_B)
        if len(group) > 1:
            self.buffers_B.copy_(torch.stack(self.statistics).mean(0))
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad /= len(group)

    def apply(self, group: Sequence[VirtualStep]) -> None:
        """Update the weights by the gradients in the model."""
        norm = self.update.step()
        for trained in group:
            trained.grad_norm = norm


class Rule(ABC):
    """Strategy: changes of weights by each event, for all learners of a training.

    `steps` has the last begun step of each learner. `means` has the mean weights before each epoch that learners have
    entered. `num_replicas` weights may differ.
    """

    def __init__(self, shared: SharedModel, num_replicas: int, assignment_rule: AssignmentRule) -> None:
        self.shared, self.assignment_rule = shared, assignment_rule
        self.steps: dict[int, VirtualStep] = {}
        self.means: defaultdict[int, Mean] = defaultdict(
            lambda: Mean(shared.start_P, shared.flat.num_weights, num_replicas)
        )

    def begin(self, learner: int) -> None:
        """Follow the Begin of the learner's step in `steps`; the default does nothing."""
        return

    @abstractmethod
    def follow(self, event: Event) -> None:
        """Follow an event that is neither a Begin nor an End."""

    @abstractmethod
    def enter(self, learner: int, epoch: int) -> None:
        """Add the weights of a learner before its first step of `epoch` to the mean."""


class Mean:
    """Mean of the weights of learners, in float64, and their distance."""

    def __init__(self, like_P: Tensor, num_weights: int, num_replicas: int) -> None:
        self.sum_P = torch.zeros_like(like_P, dtype=torch.float64)
        self.num_weights, self.num_replicas = num_weights, num_replicas
        self.squares = 0.0  # sum of ||w||^2, without buffers
        self.num_entered = 0  # learners

    def add(self, values_P: Tensor, offset: int = 0) -> None:
        """Add a learner's weights, which begin at `offset` of it."""
        self.sum_P[offset : offset + len(values_P)] += values_P
        weights_W = values_P[: max(0, self.num_weights - offset)]
        self.squares += float(torch.linalg.vector_norm(weights_W, dtype=torch.float64)) ** 2

    def add_pull(self, pull_P: Tensor, sign: int, offset: int) -> None:
        """Add the part of an exchange that is at one end alone."""
        self.sum_P[offset : offset + len(pull_P)].add_(pull_P, alpha=sign)

    def weights(self) -> Tensor:
        """Return the mean, float32."""
        return (self.sum_P / self.num_replicas).float()

    def consensus(self) -> ConsensusMetrics:
        """Return the consensus as a strategy does; the drift is not known."""
        square = float(torch.linalg.vector_norm(self.sum_P[: self.num_weights] / self.num_replicas)) ** 2
        apart = max(0.0, self.squares / self.num_replicas - square)
        return ConsensusMetrics(math.sqrt(apart / square), None)
