"""Virtual learners share one model: each has weights and an optimizer of its own, and the model computes at the weights
that lie in it.

L learners of P parameters take L P values for their weights and as many as their optimizers keep, and one model's
memory for gradients and activations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from asrtool.distributed.strategies.update import NamedParameters, Update, trained_parameters
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.predict.virtual.batches import Assigned, Trained
from asrtool.train.loop.gradient_accumulation import Pieces
from asrtool.train.optimisation.optimizer import set_learning_rate


@dataclass
class SharedModel:
    """The model, and what all learners compute with it."""

    task: nn.Module  # a batch -> its loss
    model: nn.Module  # whose weights `task` trains
    flat: FlatWeights  # of `model`
    pieces: Pieces
    make_optimizer: Callable[[NamedParameters], torch.optim.Optimizer]
    clip_norm: float
    assigned: Assigned = field(init=False)  # to learners by the rule of their strategy

    def __post_init__(self) -> None:
        self.start_P = self.flat.weights_P.clone()


class Replica:
    """The weights of `members`, learners that have the same ones and average their gradients, and one optimizer.

    The values behind the weights are statistics of batches. Each member changes its own; those of `weights_P` are their
    mean, which all have before the next step where they `share_statistics`.
    """

    def __init__(self, shared: SharedModel, members: Sequence[int], share_statistics: bool = True) -> None:
        self.shared = shared
        self.members = members
        self.share_statistics = share_statistics
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

    def compute(self, group: Sequence[Trained]) -> None:
        """Leave in the model, which then lies in `weights_P`, the mean gradient of what the members begin there."""
        self.shared.flat.move(self.weights_P)
        assigned = self.shared.assigned
        set_learning_rate(self.optimizer, assigned.rate(group[0]))
        divisor = assigned.divisor(group)
        for own_B in self.statistics if self.share_statistics else ():
            own_B.copy_(self.buffers_B)
        for place, trained in enumerate(group):
            assigned.read(trained)
            self._compute_one(place, trained, divisor)
        if len(group) > 1:
            self.buffers_B.copy_(torch.stack(self.statistics).mean(0))
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad /= len(group)

    def _compute_one(self, place: int, trained: Trained, divisor: float) -> None:
        self.buffers_B.copy_(self.statistics[place])
        if trained.batch is not None:
            computed = self.shared.pieces.backward(self, trained.batch, divisor, lambda: None)
            trained.nats, trained.figures = float(computed.nats), computed.figures
        self.shared.flat.fetch_buffers()
        self.statistics[place].copy_(self.buffers_B)

    def apply(self, group: Sequence[Trained]) -> None:
        """The update of the gradients in the model, to the weights that it lies in."""
        norm = self.update.step()
        for trained in group:
            trained.grad_norm = norm
