"""Learners that are threads of one process, a small model for them, and a schedule of their steps and cuts."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as collectives
from torch import nn

from asrtool.distributed.strategies.strategy import Snapshot, Strategy, StrategyContext
from asrtool.distributed.work.work_queue import BatchNumber, Round
from asrtool.distributed.world import World
from asrtool.settings.schema import Choice
from asrtool.settings.train import Train
from asrtool.train.optimisation.optimizer import build_optimizer, set_learning_rate

Value = TypeVar("Value")


class Rendezvous:
    """Meeting point at which threads exchange values."""

    def __init__(self, num: int) -> None:
        self.values: list[Any] = [None] * num
        self.barrier = threading.Barrier(num, timeout=300)
        self.store = collectives.HashStore()


class ThreadWorld(World):
    """A World whose learners are threads."""

    def __init__(self, rank: int, rendezvous: Rendezvous) -> None:
        size = len(rendezvous.values)
        super().__init__(rank, size, local_size=size, store=rendezvous.store)
        self.rendezvous = rendezvous

    def gather(self, value: Value) -> list[Value]:
        self.rendezvous.values[self.rank] = value
        self.rendezvous.barrier.wait()
        values = list(self.rendezvous.values)
        self.rendezvous.barrier.wait()
        return values

    def mean(self, values_P: torch.Tensor, message_type: torch.dtype = torch.float32) -> None:
        values_P.copy_(torch.stack(self.gather(values_P.to(message_type, copy=True).float())).mean(0))

    def all_gather(self, slices_P: list[torch.Tensor], own_P: torch.Tensor) -> None:
        for slice_P, values_P in zip(slices_P, self.gather(own_P.clone()), strict=True):
            slice_P.copy_(values_P)

    def split(self, groups: Sequence[Sequence[int]]) -> World:
        (mine,) = [ranks for ranks in groups if self.rank in ranks]
        made = self.gather(Rendezvous(len(mine)))
        return ThreadWorld(mine.index(self.rank), made[mine[0]]) if len(mine) > 1 else World()


def worlds(num: int) -> list[World]:
    if num == 1:
        return [World()]
    rendezvous = Rendezvous(num)
    return [ThreadWorld(rank, rendezvous) for rank in range(num)]


def at_once(function: Callable[..., Value], *arguments: Sequence[Any]) -> list[Value]:
    """Return the results of `function` for each of the arguments, in as many threads."""
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


class NormalisedNet(Net):
    """Model with buffers; each forward pass replaces one of them."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.norm = nn.BatchNorm1d(5)
        self.register_buffer("largest", torch.zeros(()))
        self.register_buffer("unsaved", torch.ones(3), persistent=False)

    def forward(self, inputs_TNF: torch.Tensor) -> torch.Tensor:
        self.largest = torch.maximum(self.largest, inputs_TNF.max())
        return super().forward(self.norm(inputs_TNF.transpose(1, 2)).transpose(1, 2))


def train_settings(optimizer: str = "adamw", peak_lr: float = 0.002, **values: Any) -> Train:
    """`values` are those of the optimizer."""
    return Train(optimizer=Choice.of("optimizer", optimizer, **values), peak_lr=peak_lr)


def build(
    name: str, world: World, model: nn.Module, settings: Mapping[str, Any] | None = None, **train: Any
) -> Strategy:
    """A strategy with these `settings` whose task is the model itself; `train` goes to train_settings."""
    make_optimizer = functools.partial(build_optimizer, settings=train_settings(**train))
    chosen = Choice.of("strategy", name, **(settings or {}))
    strategy: Strategy = chosen.load()(StrategyContext(model, model, make_optimizer, 1e9, chosen.settings, 1, world))
    return strategy


def started(
    name: str,
    models: Sequence[nn.Module],
    settings: Mapping[str, Any] | None = None,
    states: Sequence[Snapshot] = (),
    **train: Any,
) -> list[Strategy]:
    """A learner for each of `models`, after the first synchronisation; resumed from `states`, if there are any."""
    both = zip(worlds(len(models)), models, strict=True)
    learners = [build(name, world, model, settings, **train) for world, model in both]
    for rank, state in enumerate(states):
        learners[rank].load_state(state.learner | state.recorded, state.shared)
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


def buffers_of(model: nn.Module) -> np.ndarray:
    return flatten([buffer.double() for buffer in model.buffers()])


def flatten(tensors: Sequence[torch.Tensor | None]) -> np.ndarray:
    return np.concatenate([tensor.numpy().ravel() for tensor in tensors if tensor is not None]).astype(np.float64)


OWN = {"bmuf": {"block_steps": 2, "block_momentum": 0.0}}  # with which one learner is single


def train_alone(name: str, optimizer: str) -> np.ndarray:
    """Weights and buffers after some steps of one learner with changing learning rates."""
    model = NormalisedNet()
    (learner,) = started(name, [model], OWN.get(name), optimizer=optimizer)
    random = torch.Generator().manual_seed(3)
    for step in range(6):
        set_learning_rate(learner.optimizer, 0.01 / (step + 1))
        learner.task(torch.randn(4, 2, 5, generator=random)).backward()
        learner.step()
    learner.synchronise()
    values = np.concatenate([weights_of(model), buffers_of(model)])
    learner.close()
    return values


def wishes(
    stop: Callable[[], bool] = lambda: False,
    save: Callable[[int, Callable[[int], bool]], bool] = lambda number, ends_within: False,
    every: Callable[[int], bool] = lambda number: False,
) -> Any:
    """Requests of a learner to the others; none is to leave."""
    return SimpleNamespace(stop=stop, save=save, every=every, leave=lambda: False, may_leave=False)


class InRounds:
    """Epochs of these numbers of batches, in order; `window` of them in a window, if there are any."""

    def __init__(self, lengths: Sequence[int], size: int, window: int = 0) -> None:
        self.lengths = lengths
        self.window = window
        self.rounds = [
            Round(epoch, range(first, min(first + size, length)))
            for epoch, length in enumerate(lengths)
            for first in range(0, length, size)
        ]

    def round(self, number: int) -> Round | None:
        return self.rounds[number] if number < len(self.rounds) else None

    def batches(self, epoch: int, slots: Sequence[int]) -> tuple[BatchNumber, ...]:
        return tuple(BatchNumber(epoch, slot) for slot in slots)

    def windows(self, epoch: int) -> Sequence[range]:
        length = self.lengths[epoch]
        return [range(i, min(i + self.window, length)) for i in range(0, length, self.window)] if self.window else []


NUM_LEARNERS, NUM_CUTS, NUM_STEPS = 3, 3, 30
CUT_RATE = 2**-6


@dataclass
class Reference:
    """SGD with momentum, in float64: the weights, and the velocity of each optimizer."""

    weights: np.ndarray
    velocities: list[np.ndarray]

    def step(self, optimizer: int, gradient: np.ndarray, rate: float, momentum: float) -> None:
        """v <- mu v + g, w <- w - alpha v."""
        self.velocities[optimizer] = momentum * self.velocities[optimizer] + gradient
        self.weights = self.weights - rate * self.velocities[optimizer]


def draw_schedule(seed: int) -> list[tuple[int, bool]]:
    """Draw the next learner, and whether it makes a step; otherwise it reaches its next cut, of NUM_CUTS."""
    random = np.random.default_rng(seed)
    events = [(learner, False) for learner in range(NUM_LEARNERS) for _ in range(NUM_CUTS)]
    events += [(int(learner), True) for learner in random.integers(0, NUM_LEARNERS, NUM_STEPS)]
    return [events[number] for number in random.permutation(len(events))]


def run_schedule(
    seed: int, learners: list[Strategy], models: list[Net], momentum: float, optimizer_of: Callable[[int], int]
) -> tuple[list[Reference], list[list[Snapshot]]]:
    """Return by cut the expected weights by the steps before it, and the snapshots of all learners.

    Behind the last cut, those of all steps. `optimizer_of` gives the optimizer that steps for a learner.
    """
    random = np.random.default_rng(seed)
    start = weights_of(models[0])
    expected = [Reference(start, [np.zeros_like(start)] * NUM_LEARNERS) for _ in range(NUM_CUTS + 1)]
    taken: list[list[Snapshot]] = [[] for _ in range(NUM_LEARNERS)]
    for number, (learner, makes_step) in enumerate(draw_schedule(seed)):
        passed = len(taken[learner])
        if makes_step:
            rate = CUT_RATE / 2 ** (number % 3)
            set_learning_rate(learners[learner].optimizer, rate)
            gradient = give_gradients(models[learner], random)
            learners[learner].step()
            for reference in expected[passed:]:
                reference.step(optimizer_of(learner), gradient, rate, momentum)
        else:
            taken[learner].append(learners[learner].snapshot(passed + 1))
            unsettled = [snapshot for own in taken for snapshot in own[min(map(len, taken)) :]]
            assert not any(snapshot.settled() for snapshot in unsettled if snapshot.settled)
    return expected, [list(of_cut) for of_cut in zip(*taken, strict=True)]
