"""Linear regression by every strategy, as learners run it and as NumPy writes the equations."""

from __future__ import annotations

import dataclasses
import functools
import unittest.mock
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from asrtool.distributed.build import build_strategy
from torch import Tensor, nn

from asrtool.config import Dist
from asrtool.distributed import gossip as gossip_module
from asrtool.distributed.strategy import StrategyContext
from asrtool.distributed.topology import EDGE_WEIGHT, RINGS, mixing_matrix
from asrtool.distributed.view import View
from asrtool.distributed.world import World, init_collectives, join_learners, leave_world

NUM_INPUTS, NUM_OUTPUTS, NUM_ROWS = 7, 3, 11
RATE, MOMENTUM, DECAY, SEED = 0.05, 0.9, 0.1, 5
SETTINGS = Dist(node_size=2, outer="adpsgd-fixed", block_steps=3, block_momentum=0.6, block_rate=0.8)


def data(learner: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """The minibatch of a learner and step: inputs (rows, inputs) and wanted outputs (rows, outputs)."""
    random = np.random.default_rng((learner, step))
    return random.standard_normal((NUM_ROWS, NUM_INPUTS)), random.standard_normal((NUM_ROWS, NUM_OUTPUTS))


def start_weights() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((NUM_OUTPUTS, NUM_INPUTS))


def gradient(weights: np.ndarray, learner: int, step: int) -> np.ndarray:
    inputs, wanted = data(learner, step)
    return (inputs @ weights.T - wanted).T @ inputs / NUM_ROWS


class Regression(nn.Module):
    """The same as a task of a strategy."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(start_weights()).float())

    def forward(self, batch: tuple[Tensor, Tensor] | None) -> Tensor:
        if batch is None:
            return 0 * self.weight.sum()
        inputs, wanted = batch
        return ((inputs @ self.weight.T - wanted) ** 2).sum() / (2 * NUM_ROWS)


class InLockStep:
    """An Exchanger whose exchanges all take place at once, between the same snapshots."""

    def __init__(self, view: View, weight: float, host: str) -> None:
        self.view = view
        self.weight = weight
        self.address = ""
        self.num_bytes = 0
        self.world = World()

    def begin(self, neighbour: int) -> bool:
        mine_P = self.view.v_P.clone()
        begun = self.world.gather((neighbour, mine_P))
        for learner, (partner, theirs_P) in enumerate(begun):
            if learner == self.world.rank:
                self.view.pull(mine_P, begun[partner][1], self.weight)
            if partner == self.world.rank:
                self.view.pull(mine_P, theirs_P, self.weight)
        return True

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


def train(name: str, num_steps: int) -> np.ndarray:
    """A learner's own weights after each step: (steps, outputs, inputs)."""
    world = join_learners()
    init_collectives(world)
    with unittest.mock.patch.object(gossip_module, "Exchanger", InLockStep):
        weights = _train(name, num_steps, world)
    leave_world()
    return weights


def _train(name: str, num_steps: int, world: World) -> np.ndarray:
    model = Regression()
    make_optimizer = functools.partial(torch.optim.SGD, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    name, _, outer = name.partition(" by ")
    settings = dataclasses.replace(SETTINGS, outer=outer or SETTINGS.outer)
    strategy = build_strategy(StrategyContext(name, model, model, make_optimizer, 1e9, settings, SEED, world))
    strategy.start()
    mixing = getattr(strategy, "mixing", None)
    gossip = getattr(mixing, "outer", mixing)
    if isinstance(gossip, gossip_module.Gossip):
        gossip.exchanger.world = gossip.world  # type: ignore[union-attr]
    weights = []
    for step in range(num_steps):
        inputs, wanted = (torch.from_numpy(part).float() for part in data(world.rank, step))
        strategy.task((inputs, wanted)).backward()
        strategy.step()
        weights.append(model.weight.detach().numpy().copy())
    world.barrier()
    strategy.close()
    return np.stack(weights)


def by_equations(name: str, num_learners: int, num_steps: int) -> np.ndarray:
    """(steps, learners, outputs, inputs)."""
    weights = np.stack([start_weights()] * num_learners)
    momenta = np.zeros_like(weights)
    rule = RULES[name](num_learners)
    history = []
    for step in range(num_steps):
        gradients = np.stack([gradient(weights[i], i, step) for i in range(num_learners)])
        weights, momenta = rule(weights, momenta, gradients, step)
        history.append(weights)
    return np.stack(history)


Rule = Callable[[np.ndarray, np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def allreduce(num_learners: int) -> Rule:
    """w <- w - alpha m, m <- mu m + mean g + lambda w."""

    def rule(weights: np.ndarray, momenta: np.ndarray, gradients: np.ndarray, step: int) -> tuple[Any, Any]:
        momenta = MOMENTUM * momenta + gradients.mean(axis=0) + DECAY * weights
        return weights - RATE * momenta, momenta

    return rule


def mixed(matrix_of: Callable[[int], np.ndarray], decays_mixed: bool = False) -> Rule:
    """W <- W T - alpha M; T[i, j] is the weight of learner i in the next weights of learner j.

    M <- mu M + G + lambda W, or lambda W T where `decays_mixed`.
    """

    def rule(weights: np.ndarray, momenta: np.ndarray, gradients: np.ndarray, step: int) -> tuple[Any, Any]:
        new_weights = np.einsum("ioe,ij->joe", weights, matrix_of(step))
        momenta = MOMENTUM * momenta + gradients + DECAY * (new_weights if decays_mixed else weights)
        return new_weights - RATE * momenta, momenta

    return rule


def ring(name: str, num_learners: int) -> Rule:
    """Nothing has been exchanged before the first step."""

    def matrix(step: int) -> np.ndarray:
        return mixing_matrix(RINGS[name](num_learners, step, SEED)) if step else np.eye(num_learners)

    return mixed(matrix)


def delay_by_one(num_learners: int) -> Rule:
    return mixed(lambda step: np.full((num_learners, num_learners), 1 / num_learners), decays_mixed=True)


def hierarchical(outer_of: Callable[[int], Rule], num_learners: int) -> Rule:
    """Pairs share their gradients; the pairs mix by another rule."""
    outer = outer_of(num_learners // 2)

    def rule(weights: np.ndarray, momenta: np.ndarray, gradients: np.ndarray, step: int) -> tuple[Any, Any]:
        pairs = gradients.reshape(num_learners // 2, 2, *gradients.shape[1:]).mean(axis=1)
        new_weights, new_momenta = outer(weights[::2], momenta[::2], pairs, step)
        return np.repeat(new_weights, 2, axis=0), np.repeat(new_momenta, 2, axis=0)

    return rule


def bmuf(num_learners: int) -> Rule:
    """Every K steps G = mean(w) - w_prev; D = eta D + zeta G; w = w_prev + D."""
    previous, change = start_weights(), np.zeros((NUM_OUTPUTS, NUM_INPUTS))

    def rule(weights: np.ndarray, momenta: np.ndarray, gradients: np.ndarray, step: int) -> tuple[Any, Any]:
        nonlocal previous, change
        momenta = MOMENTUM * momenta + gradients + DECAY * weights
        weights = weights - RATE * momenta
        if (step + 1) % SETTINGS.block_steps == 0:
            change = SETTINGS.block_momentum * change + SETTINGS.block_rate * (weights.mean(axis=0) - previous)
            previous = previous + change
            weights = np.stack([previous] * num_learners)
        return weights, momenta

    return rule


RULES: dict[str, Callable[[int], Rule]] = {
    "allreduce": allreduce,
    "adpsgd-fixed": functools.partial(ring, "fixed"),
    "adpsgd-random": functools.partial(ring, "random"),
    "adpsgd-d1": delay_by_one,
    "h-adpsgd": functools.partial(hierarchical, functools.partial(ring, "fixed")),
    "h-adpsgd by adpsgd-d1": functools.partial(hierarchical, delay_by_one),
    "bmuf": bmuf,
}
assert EDGE_WEIGHT == 1 / 3
