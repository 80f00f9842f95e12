"""Learners that are threads of one process, and a small model for them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from asrtool.distributed.build import build_strategy
from torch import nn

from asrtool.config import Dist, Train
from asrtool.distributed.strategy import Strategy, StrategyContext
from asrtool.distributed.world import World
from asrtool.train.optimizer import build_optimizer, set_learning_rate

Value = TypeVar("Value")


class Rendezvous:
    """Where threads tell one another something."""

    def __init__(self, num: int) -> None:
        self.values: list[Any] = [None] * num
        self.barrier = threading.Barrier(num, timeout=60)


class ThreadWorld(World):
    """A World whose learners are threads."""

    def __init__(self, rank: int, rendezvous: Rendezvous) -> None:
        size = len(rendezvous.values)
        super().__init__(rank, size, local_size=size)
        self.rendezvous = rendezvous

    def gather(self, value: Value) -> list[Value]:
        self.rendezvous.values[self.rank] = value
        self.rendezvous.barrier.wait()
        values = list(self.rendezvous.values)
        self.rendezvous.barrier.wait()
        return values


def worlds(num: int) -> list[World]:
    if num == 1:
        return [World()]
    rendezvous = Rendezvous(num)
    return [ThreadWorld(rank, rendezvous) for rank in range(num)]


def at_once(function: Callable[..., Value], *arguments: Sequence[Any]) -> list[Value]:
    """What `function` returns for each of the arguments, in as many threads."""
    with ThreadPoolExecutor(len(arguments[0])) as pool:
        return list(pool.map(function, *arguments))


class Net(nn.Module):
    """Parameters of several shapes."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.lstm = nn.LSTM(5, 7)
        self.output = nn.Linear(7, 3)

    def forward(self, inputs_TNF: torch.Tensor) -> torch.Tensor:
        hidden_TNC, _ = self.lstm(inputs_TNF)
        return self.output(hidden_TNC).square().sum()


def build(name: str, world: World, model: nn.Module, settings: Dist | None = None, **train: Any) -> Strategy:
    """A strategy whose task is the model itself; `train` are settings of the optimizer."""
    make_optimizer = functools.partial(build_optimizer, settings=Train(**train))
    return build_strategy(StrategyContext(name, model, model, make_optimizer, 1e9, settings or Dist(), 1, world))


def started(
    name: str, models: Sequence[nn.Module], settings: Dist | None = None, states: Sequence[Any] = (), **train: Any
) -> list[Strategy]:
    """A learner for each of `models`, after they first met; gone on from `states`, if there are any."""
    both = zip(worlds(len(models)), models, strict=True)
    learners = [build(name, world, model, settings, **train) for world, model in both]
    for rank, state in enumerate(states):
        learners[rank].load_state(state)
    at_once(lambda learner: learner.start(), learners)
    synchronise(learners)
    return learners


def synchronise(learners: Sequence[Strategy]) -> None:
    at_once(lambda learner: learner.synchronise(), learners)


def give_gradients(model: nn.Module, random: np.random.Generator) -> np.ndarray:
    """Set the gradients of `model` to small whole numbers, exact in float32; returns them one after another."""
    for parameter in model.parameters():
        parameter.grad = torch.from_numpy(random.integers(-3, 4, tuple(parameter.shape)).astype(np.float32))
    return flatten([parameter.grad for parameter in model.parameters()])


def weights_of(model: nn.Module) -> np.ndarray:
    return flatten([parameter.detach() for parameter in model.parameters()])


def flatten(tensors: Sequence[torch.Tensor | None]) -> np.ndarray:
    return np.concatenate([tensor.numpy().ravel() for tensor in tensors if tensor is not None]).astype(np.float64)


def train_alone(name: str, optimizer: str) -> np.ndarray:
    """The weights after some steps of one learner with changing learning rates."""
    model = Net()
    (learner,) = started(name, [model], optimizer=optimizer)
    random = torch.Generator().manual_seed(3)
    for step in range(6):
        set_learning_rate(learner.optimizer, 0.01 / (step + 1))
        learner.task(torch.randn(4, 2, 5, generator=random)).backward()
        learner.step()
    learner.synchronise()
    weights = weights_of(model)
    learner.close()
    return weights
