"""How learners share their work. The training loop calls a strategy and never asks which one it is."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch
from torch import nn


class Strategy(ABC):
    """What a learner does with the gradients of a batch, and which weights stand for all learners."""

    @abstractmethod
    def step(self) -> float:
        """Update the weights from the gradients that `backward` left, then clear those.

        Returns the gradient norm before clipping. When it is not finite the weights stay as they were.
        """

    @abstractmethod
    def consensus(self) -> AbstractContextManager[None]:
        """Inside, the model holds the weights that stand for all learners: those to evaluate and save."""


class Single(Strategy):
    """One learner: w <- w - alpha g(w)."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, clip_norm: float) -> None:
        self.model = model
        self.optimizer = optimizer
        self.clip_norm = clip_norm

    def step(self) -> float:
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm))
        if math.isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    @contextlib.contextmanager
    def consensus(self) -> Iterator[None]:
        yield
