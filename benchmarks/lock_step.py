"""Learners of one process in lock-step: the equations of strategies, without processes, messages and checkpoints.

W_{k+1} = W_k T_k - alpha M, M <- mu M + G: what `asrtool train` computes where learners are equally fast and each
exchange takes place at once (arXiv 2110.11199); tests/unit/train/test_lock_step.py compares both with one reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from asrtool.distributed.flat import FlatWeights
from asrtool.distributed.settings import Bmuf
from asrtool.distributed.topology import Ring, fixed_ring, mixing_matrix, pair_matrix, passive_partner, random_ring
from asrtool.train.batch import prepare_batch
from asrtool.train.job import Components
from asrtool.train.loss import Task, sum_loss
from asrtool.train.precision import choose_precision
from asrtool.train.schedule import learning_rate
from asrtool.train.settings import Train
from asrtool.train.source import Planned

RINGS: dict[str, Ring] = {"adpsgd-fixed": fixed_ring, "adpsgd-random": random_ring}
ONE = ("single", "allreduce")  # strategies with one set of weights
BLOCK = Bmuf(block_steps=4)
STRATEGIES = (*ONE, *RINGS, "adpsgd-pairs", "adpsgd-d1", "bmuf")

DIVERGED = 3.0  # times the lowest loss on dev: it is not reached again in time
Gradient = Callable[[Tensor, int], Tensor | None]  # of weights (P,) and a row; None where there is nothing to learn


class LockStep:
    """`weights_LP`: a row for each learner; one for all where they have the same weights."""

    def __init__(self, name: str, start_P: Tensor, num_learners: int, momentum: float, seed: int) -> None:
        self.name = name
        self.seed = seed
        self.momentum = momentum
        self.weights_LP = start_P.repeat(1 if name in ONE else num_learners, 1)
        self.momenta_LP = torch.zeros_like(self.weights_LP)
        self.previous_P, self.change_P = start_P.clone(), torch.zeros_like(start_P)  # of blocks
        self.num_steps = 0

    def step(self, gradient: Gradient, rate: float) -> None:
        """All learners take a step; gradients are those of the weights before it."""
        rows = len(self.weights_LP)
        gradients = [gradient(self.weights_LP[row], row) for row in range(rows)]
        self.weights_LP = self._matrix(rows).to(self.weights_LP).T @ self.weights_LP
        for row, gradient_P in enumerate(gradients):
            if gradient_P is not None:
                self.momenta_LP[row].mul_(self.momentum).add_(gradient_P)
                self.weights_LP[row].sub_(self.momenta_LP[row], alpha=rate)
        self.num_steps += 1
        if self.name == "bmuf" and self.num_steps % BLOCK.block_steps == 0:
            self._end_block()

    def _matrix(self, rows: int) -> Tensor:
        """T of this step; with gossip nothing has been exchanged before the first one."""
        if self.name == "adpsgd-d1":
            return torch.full((rows, rows), 1 / rows, dtype=torch.float64)
        if self.name in RINGS and self.num_steps:
            return torch.from_numpy(mixing_matrix(RINGS[self.name](rows, self.num_steps, self.seed)))
        if self.name == "adpsgd-pairs" and self.num_steps:
            drawn = [(row, passive_partner(rows, self.num_steps, self.seed, row)) for row in range(rows)]
            return torch.from_numpy(pair_matrix(rows, [(row, other) for row, other in drawn if other is not None]))
        return torch.eye(rows)

    def _end_block(self) -> None:
        """G = mean w - w_prev; D <- eta D + zeta G; w_prev <- w_prev + D; all learners begin there."""
        change_P = self.weights_LP.mean(dim=0) - self.previous_P
        self.change_P.mul_(BLOCK.block_momentum).add_(change_P, alpha=BLOCK.block_rate)
        self.previous_P += self.change_P
        self.weights_LP[:] = self.previous_P


@dataclass
class Learners:
    """What trains by `name` in rounds of `num_learners` batches."""

    name: str
    num_learners: int
    components: Components
    settings: Train

    def __post_init__(self) -> None:
        self.precision = choose_precision("fp32")
        self.model = self.components.model.to("cpu")
        self.task = Task(self.model, self.precision)
        self.flat = FlatWeights(self.model)
        momentum = self.settings.optimizer.settings.momentum
        self.rule = LockStep(self.name, self.flat.weights_P, self.num_learners, momentum, self.settings.seed)
        source = self.components.train_set
        self.total_samples = self.settings.num_epochs * source.size().num_samples
        self.num_samples = self.num_batches = 0

    def losses(self) -> Iterator[float]:
        """The loss on dev of the mean weights after each epoch; ends where it is no number, or far above the lowest."""
        lowest = math.inf
        dev_set = self.components.dev_set
        for epoch in range(self.settings.num_epochs):
            batches = list(self.components.train_set.plan(epoch, 0, {}))
            for first in range(0, len(batches), self.num_learners):
                self._round(batches[first : first + self.num_learners])
            self.flat.weights_P.copy_(self.rule.weights_LP.mean(dim=0))
            loss = sum_loss(self.model, dev_set, dev_set.plan_eval(), self.precision, lambda: None).means()["loss"]
            lowest = min(lowest, loss)
            if not loss < DIVERGED * lowest:
                return
            yield loss

    def _round(self, batches: Sequence[Planned]) -> None:
        self.num_samples += sum(batch.num_samples for batch in batches)
        rate = learning_rate(self.settings, self.num_samples, self.total_samples)
        groups = [batches] if len(self.rule.weights_LP) == 1 else [[batch] for batch in batches]

        def gradient(weights_P: Tensor, row: int) -> Tensor | None:
            return self._gradient(weights_P, groups[row], self.num_batches + row) if row < len(groups) else None

        self.rule.step(gradient, rate)
        self.num_batches += len(batches)

    def _gradient(self, weights_P: Tensor, group: Sequence[Planned], number: int) -> Tensor | None:
        """Of the mean loss of a group of batches, the first of which has this number; clipped."""
        self.flat.weights_P.copy_(weights_P)
        normaliser = max(sum(batch.normaliser for batch in group), 1)
        for place, planned in enumerate(group):
            batch = self.components.train_set.read(planned)
            prepare_batch(batch, self.settings.seed, number + place, self.components.augment)
            (self.task(batch) / normaliser).backward()
        norm = float(torch.nn.utils.clip_grad_norm_(self.flat.parameters, self.settings.clip_norm))
        gradient_P = torch.zeros_like(weights_P)
        starts = np.cumsum([0, *self.flat.sizes]).tolist()
        for parameter, start in zip(self.flat.parameters, starts, strict=False):
            assert parameter.grad is not None
            gradient_P[start : start + parameter.numel()] = parameter.grad.flatten()
            parameter.grad = None
        return gradient_P if math.isfinite(norm) and norm > 0 else None
