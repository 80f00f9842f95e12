"""Rule of a strategy for virtual learners: changes of weights by each event."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

from asrtool.distributed.strategies.strategy import ConsensusMetrics
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.predict.simulate.events import Event
from asrtool.predict.virtual.replica import SharedModel, Trained


class Rule(ABC):
    """Rule for all learners of a training.

    `steps` has the last begun step of each learner. `means` has the mean weights before each epoch that learners have
    entered. `num_replicas` weights may differ.
    """

    def __init__(self, shared: SharedModel, num_replicas: int, assignment_rule: AssignmentRule) -> None:
        self.shared = shared
        self.assignment_rule = assignment_rule
        self.steps: dict[int, Trained] = {}
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
        """A learner has ended all its steps before `epoch`: its part of the mean there."""


class Mean:
    """The mean of the weights of learners, in float64, and how far they are apart."""

    def __init__(self, like_P: Tensor, num_weights: int, num_replicas: int) -> None:
        self.sum_P = torch.zeros_like(like_P, dtype=torch.float64)
        self.num_weights = num_weights
        self.num_replicas = num_replicas
        self.squares = 0.0  # sum of ||w||^2, without buffers
        self.num_entered = 0  # learners

    def add(self, values_P: Tensor, offset: int = 0) -> None:
        """Add a learner's weights, which begin at `offset` of it."""
        self.sum_P[offset : offset + len(values_P)] += values_P
        of_weights = values_P[: max(0, self.num_weights - offset)]
        self.squares += float(torch.linalg.vector_norm(of_weights, dtype=torch.float64)) ** 2

    def add_pull(self, pull_P: Tensor, sign: int, offset: int) -> None:
        """Add the part of an exchange that is at one end alone."""
        self.sum_P[offset : offset + len(pull_P)].add_(pull_P, alpha=sign)

    def weights(self) -> Tensor:
        """The mean, float32."""
        return (self.sum_P / self.num_replicas).float()

    def consensus(self) -> ConsensusMetrics:
        """Return the consensus as a strategy does; the drift is not known."""
        square = float(torch.linalg.vector_norm(self.sum_P[: self.num_weights] / self.num_replicas)) ** 2
        apart = max(0.0, self.squares / self.num_replicas - square)
        return ConsensusMetrics(math.sqrt(apart / square), None)


def mean_of(tensors: Iterable[Tensor]) -> Tensor:
    """Summed in their order, then divided, as learners do."""
    first, *others = tensors
    total = first.clone()
    for tensor in others:
        total += tensor
    return total.div_(1 + len(others))
