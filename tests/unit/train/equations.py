"""Linear regression by every strategy, as learners run it and as NumPy writes the equations.

Inputs are normalised over the rows of a batch: running means and variances are buffers, by the same rules.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import unittest.mock
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fake_gpu import CountedStream, fake_gpu
from torch import Tensor, nn

from asrtool.distributed.strategies import gossip as gossip_module
from asrtool.distributed.strategies.strategy import NamedParameters, StepCost, Strategy, StrategyContext
from asrtool.distributed.strategies.topology import EDGE_WEIGHT, PAIR_WEIGHT, mixing_matrix
from asrtool.distributed.transport.view import View
from asrtool.distributed.world import World, init_collectives, join_learners, leave_world
from asrtool.settings.distributed import Bmuf
from asrtool.settings.schema import Choice
from asrtool.train.checkpoints.checkpoint import Saved, State
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.optimisation.optimizer import FastSGD, set_learning_rate

NUM_INPUTS, NUM_OUTPUTS, NUM_ROWS = 7, 3, 11
RATE, MOMENTUM, DECAY, SEED = 0.05, 0.9, 0.1, 5
NORM_MOMENTUM, NORM_EPS = 0.3, 1e-5  # the first is the fraction of a batch in the running statistics
SETTINGS: dict[str, dict[str, Any]] = {
    "h-adpsgd": {"node_size": 2, "outer": "adpsgd-fixed"},
    "bmuf": {"block_steps": 3, "block_momentum": 0.6, "block_rate": 0.8},
    "ps-sync": {"num_servers": 1},
}
BLOCK = Bmuf(**SETTINGS["bmuf"])


def data(learner: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """The minibatch of a learner and step: inputs (rows, inputs) and wanted outputs (rows, outputs)."""
    random = np.random.default_rng((learner, step))
    return random.standard_normal((NUM_ROWS, NUM_INPUTS)), random.standard_normal((NUM_ROWS, NUM_OUTPUTS))


def start_weights() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((NUM_OUTPUTS, NUM_INPUTS))


def gradient(weights: np.ndarray, learner: int, step: int) -> np.ndarray:
    inputs, wanted = data(learner, step)
    normalised = (inputs - inputs.mean(axis=0)) / np.sqrt(inputs.var(axis=0) + NORM_EPS)
    return (normalised @ weights.T - wanted).T @ normalised / NUM_ROWS


class Regression(nn.Module):
    """Regression as a task of a strategy."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(start_weights()).float())
        self.norm = nn.BatchNorm1d(NUM_INPUTS, eps=NORM_EPS, affine=False, momentum=NORM_MOMENTUM)

    def forward(self, batch: tuple[Tensor, Tensor] | None) -> Tensor:
        if batch is None:
            return 0 * self.weight.sum()
        inputs, wanted = batch
        return ((self.norm(inputs) @ self.weight.T - wanted) ** 2).sum() / (2 * NUM_ROWS)

    def statistics(self) -> np.ndarray:
        """Running means, then running variances: (2 * inputs,)."""
        return torch.cat([self.norm.running_mean, self.norm.running_var]).numpy()


def make_optimizer(named_parameters: NamedParameters) -> torch.optim.Optimizer:
    parameters = [parameter for _, parameter in named_parameters]
    return FastSGD(parameters, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)


class InLockStep:
    """An Exchanger whose exchanges all take place at once, between the same snapshots."""

    def __init__(self, view: View, weight: float) -> None:
        self.view = view
        self.weight = weight
        self.address = ""
        self.num_bytes = self.num_refused = 0
        self.partners: list[int] = []
        self.idle = threading.Event()
        self.idle.set()
        self.world = World()

    def begin(self, neighbour: int) -> bool:
        mine_P = self.view.copy()
        begun = self.world.gather((neighbour, mine_P))
        for learner, (partner, theirs_P) in enumerate(begun):
            if learner == self.world.rank:
                self.view.pull(self.weight * (mine_P - begun[partner][1]))
                self.partners.append(partner)
            if partner == self.world.rank:
                self.view.pull(self.weight * (mine_P - theirs_P))
        return True

    def take_partners(self) -> list[int]:
        partners, self.partners = self.partners, []
        return partners

    def check(self) -> None:
        """Check that no learner ends by an error."""

    def wait(self) -> None:
        """Return at once: an exchange has ended when it has begun."""

    def close(self) -> None:
        pass


class InTurn(InLockStep):
    """One whose exchanges take place one after the other, by the ranks of those that begin them."""

    def begin(self, neighbour: int | None) -> bool:
        """All learners call this, those that begin no exchange with None."""
        begun = self.world.gather((neighbour, self.view.copy()))
        values = [v_P for _, v_P in begun]
        for learner, (partner, _) in enumerate(begun):
            if partner is not None:
                for here, there in ((learner, partner), (partner, learner)):
                    if here == self.world.rank:
                        self.view.pull(self.weight * (values[here] - values[there]))
                values[learner] = values[partner] = (values[learner] + values[partner]) / 2
        return True


def make_exchanger(view: View, weight: float, *_: Any, **__: Any) -> InLockStep:
    return (InTurn if weight == PAIR_WEIGHT else InLockStep)(view, weight)


@contextlib.contextmanager
def connected() -> Iterator[World]:
    """Inside, this process is one of the learners, who exchange in lock-step."""
    world = join_learners()
    init_collectives(world)
    with unittest.mock.patch.object(gossip_module, "Exchanger", make_exchanger):
        yield world
    leave_world()


def build(name: str, model: nn.Module, world: World) -> Strategy:
    """A strategy, which may be named with the rule between its nodes, h-adpsgd by RULE, with nesterov, or in bf16."""
    name, in_bf16, _ = name.partition(" in bf16")
    name, nesterov, _ = name.partition(" with nesterov")
    name, _, outer = name.partition(" by ")
    more = {"outer": outer, "nesterov": bool(nesterov), "message_type": "bf16" if in_bf16 else ""}
    values = {**SETTINGS.get(name, {}), **{key: value for key, value in more.items() if value}}
    chosen = Choice.of("strategy", name, **values)
    context = StrategyContext(model, model, make_optimizer, 1e9, chosen.settings, SEED, world)
    strategy: Strategy = chosen.load()(context)
    return strategy


def start(strategy: Strategy) -> None:
    strategy.start()
    gossip = getattr(strategy, "mixing", None)
    if isinstance(gossip, gossip_module.Gossip):
        gossip.exchanger.world = gossip.world  # type: ignore[union-attr]


@contextlib.contextmanager
def learning(
    name: str, model: nn.Module, on_gpu: bool = False
) -> Iterator[tuple[Strategy, World, list[CountedStream]]]:
    """Inside, this process trains `model` by a strategy, on a GPU if asked, whose streams are given too."""
    with connected() as world, fake_gpu() if on_gpu else contextlib.nullcontext([]) as streams:
        strategy = build(name, model, world)
        start(strategy)
        yield strategy, world, streams
        world.barrier()
        strategy.close()


def take_step(strategy: Strategy, world: World, step: int) -> StepCost:
    inputs, wanted = (torch.from_numpy(part).float() for part in data(world.rank, step))
    strategy.task((inputs, wanted)).backward()
    _, cost = strategy.step()
    exchanger = getattr(getattr(strategy, "mixing", None), "exchanger", None)
    if isinstance(exchanger, InTurn) and world.rank % 2:
        exchanger.begin(None)
    return cost


class Trained(NamedTuple):
    """Result of a learner."""

    weights: np.ndarray  # its own after each step: (steps, outputs, inputs)
    statistics: np.ndarray  # (steps, 2 * inputs)
    counted: list[tuple[int, int, int]]  # bytes that each step copied to the host and to the GPU, and sent
    of_all: np.ndarray  # statistics that stand for all in the end
    num_batches: int  # that are counted then


def train(name: str, num_steps: int, rate: float = RATE, on_gpu: bool = False) -> Trained:
    """Train as one of the learners; the last one counts a batch more than it has trained.

    The GPU is memory of the host; a step waits until all copies are made.
    """
    model, weights, statistics, counted = Regression(), [], [], []
    with learning(name, model, on_gpu) as (strategy, world, streams):
        strategy.synchronise()
        set_learning_rate(strategy.optimizer, rate)
        for step in range(num_steps):
            before = [sum(stream.to_host for stream in streams), sum(stream.to_gpu for stream in streams)]
            cost = take_step(strategy, world, step)
            if staging := getattr(getattr(strategy, "mixing", None), "staging", None):
                staging.wait()
            weights.append(model.weight.detach().numpy().copy())
            statistics.append(model.statistics())
            after = [sum(stream.to_host for stream in streams), sum(stream.to_gpu for stream in streams)]
            counted.append((after[0] - before[0], after[1] - before[1], cost.num_bytes))
        model.norm.num_batches_tracked += world.rank == world.size - 1
        strategy.synchronise()
        with strategy.consensus():
            of_all = model.statistics()
    return Trained(np.stack(weights), np.stack(statistics), counted, of_all, int(model.norm.num_batches_tracked))


def train_and_resume(name: str, folder: Path, resumes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Save a checkpoint after four of eight steps; end there and resume from it, or continue.

    Returns all values of the model at the end, its statistics last, and the statistics in the checkpoint.
    """
    with connected() as world:
        model = Regression()
        strategy = build(name, model, world)
        start(strategy)
        checkpointer = Checkpointer(folder, {}, world)
        for step in range(8):
            take_step(strategy, world, step)
            if step == 3:
                strategy.synchronise()
                checkpointer.run = "run"
                checkpointer.save(model, strategy, State(step=4, learners=list(range(world.size))), Saved(4, None))
                checkpointer.drain()
                world.barrier()
                found, _ = checkpointer.load() or ({}, None)
                if resumes:
                    strategy.close()
                    model = Regression()
                    model.load_state_dict(found["weights"])
                    strategy = build(name, model, world)
                    strategy.load_state(found["learner"], found["shared"])
                    start(strategy)
        strategy.synchronise()
        strategy.close()
        values = torch.cat([value.flatten().double() for value in model.state_dict().values()]).numpy()
        model.load_state_dict(found["weights"])
        return values, model.statistics()


def by_equations(name: str, num_learners: int, num_steps: int) -> np.ndarray:
    """(steps, learners, outputs, inputs)."""
    weights = np.stack([start_weights()] * num_learners)
    momenta = np.zeros_like(weights)
    rule = RULES[name.removesuffix(" in bf16")](num_learners)
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


def ring_matrix(name: str, num_learners: int, step: int) -> np.ndarray:
    """Return the mixing matrix of a ring; nothing is exchanged before the first step."""
    return mixing_matrix(ring_order(name, num_learners, step, SEED)) if step else np.eye(num_learners)


def ring_order(name: str, num_learners: int, step: int, seed: int) -> list[int]:
    """As documented, apart from asrtool.distributed.strategies.topology: 0, 1, 2, ..., or an order drawn from
    seed and step."""
    if name == "fixed":
        return list(range(num_learners))
    order: list[int] = np.random.default_rng((seed, step)).permutation(num_learners).tolist()
    return order


def ring(name: str, num_learners: int) -> Rule:
    return mixed(functools.partial(ring_matrix, name, num_learners))


def pairs_in_turn(num_learners: int, step: int) -> np.ndarray:
    """As documented, apart from asrtool.distributed.strategies.topology: even ranks one after the other, each
    with an odd one."""
    matrix = np.eye(num_learners)
    for learner in range(0, num_learners, 2) if step else ():
        drawn = np.random.default_rng((SEED, step, learner)).integers(num_learners // 2)
        one = np.eye(num_learners)
        one[np.ix_([learner, 2 * drawn + 1], [learner, 2 * drawn + 1])] = 1 / 2
        matrix = matrix @ one
    return matrix


def pairs(num_learners: int) -> Rule:
    return mixed(functools.partial(pairs_in_turn, num_learners))


def delay_by_one(num_learners: int) -> Rule:
    return mixed(functools.partial(of_mean, num_learners), decays_mixed=True)


def hierarchical(outer_of: Callable[[int], Rule], num_learners: int) -> Rule:
    """Pairs average their gradients; the pairs mix by another rule."""
    outer = outer_of(num_learners // 2)

    def rule(weights: np.ndarray, momenta: np.ndarray, gradients: np.ndarray, step: int) -> tuple[Any, Any]:
        pairs = gradients.reshape(num_learners // 2, 2, *gradients.shape[1:]).mean(axis=1)
        new_weights, new_momenta = outer(weights[::2], momenta[::2], pairs, step)
        return np.repeat(new_weights, 2, axis=0), np.repeat(new_momenta, 2, axis=0)

    return rule


def bmuf(num_learners: int, nesterov: bool = False) -> Rule:
    """Every K steps G = mean(w) - w'; D = eta D + zeta G; W = W + D; learners begin the next block at w'.

    That is W, or with Nesterov's momentum W + eta D.
    """
    begun, model, change = start_weights(), start_weights(), np.zeros((NUM_OUTPUTS, NUM_INPUTS))

    def rule(weights: np.ndarray, momenta: np.ndarray, gradients: np.ndarray, step: int) -> tuple[Any, Any]:
        nonlocal begun, model, change
        momenta = MOMENTUM * momenta + gradients + DECAY * weights
        weights = weights - RATE * momenta
        if (step + 1) % BLOCK.block_steps == 0:
            change = BLOCK.block_momentum * change + BLOCK.block_rate * (weights.mean(axis=0) - begun)
            model = model + change
            begun = model + BLOCK.block_momentum * change if nesterov else model
            weights = np.stack([begun] * num_learners)
        return weights, momenta

    return rule


RULES: dict[str, Callable[[int], Rule]] = {
    "allreduce": allreduce,
    "ps-sync": allreduce,
    "adpsgd-fixed": functools.partial(ring, "fixed"),
    "adpsgd-random": functools.partial(ring, "random"),
    "adpsgd-pairs": pairs,
    "adpsgd-d1": delay_by_one,
    "h-adpsgd": functools.partial(hierarchical, functools.partial(ring, "fixed")),
    "h-adpsgd by adpsgd-random": functools.partial(hierarchical, functools.partial(ring, "random")),
    "h-adpsgd by adpsgd-d1": functools.partial(hierarchical, delay_by_one),
    "bmuf": bmuf,
    "bmuf with nesterov": functools.partial(bmuf, nesterov=True),
}
assert EDGE_WEIGHT == 1 / 3
assert PAIR_WEIGHT == 1 / 2


def batch_statistics(learner: int, step: int) -> np.ndarray:
    inputs, _ = data(learner, step)
    return np.concatenate([inputs.mean(axis=0), inputs.var(axis=0, ddof=1)])


def statistics_by_equations(name: str, num_learners: int, num_steps: int) -> np.ndarray:
    """(steps, learners, 2 * inputs): B <- (B before + C own) after, where C = gamma (batch statistics - B).

    A column of each matrix is a learner. C is what forward passes change; weights have the optimizer's update instead.
    """
    statistics = np.stack([np.repeat([0.0, 1.0], NUM_INPUTS)] * num_learners)
    history = []
    for step in range(num_steps):
        before, own, after = STATISTICS[name](num_learners, step)
        batches = np.stack([batch_statistics(learner, step) for learner in range(num_learners)])
        changes = NORM_MOMENTUM * (batches - statistics)
        statistics = after.T @ (before.T @ statistics + own.T @ changes)
        history.append(statistics)
    return np.stack(history)


Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]


def num_learners_of(name: str) -> int:
    """Five that mix: of fewer than four, every ring is the same; of four, its diagonal differs alone."""
    return 10 if name.startswith("h-adpsgd") else 5


def mixed_before(matrix_of: Callable[[int, int], np.ndarray], num_learners: int, step: int) -> Matrices:
    return matrix_of(num_learners, step), np.eye(num_learners), np.eye(num_learners)


def of_mean(num_learners: int, step: int) -> np.ndarray:
    return np.full((num_learners, num_learners), 1 / num_learners)


own_statistics = functools.partial(mixed_before, lambda num_learners, _: np.eye(num_learners))
mean_statistics = functools.partial(mixed_before, of_mean)
fixed_statistics = functools.partial(mixed_before, functools.partial(ring_matrix, "fixed"))


def pair_statistics(outer: Callable[[int, int], Matrices], num_learners: int, step: int) -> Matrices:
    """Pairs have the same statistics, changed by the mean of what both change."""
    before, own, after = (np.kron(matrix, np.full((2, 2), 0.5)) for matrix in outer(num_learners // 2, step))
    return before, own, after


def block_statistics(num_learners: int, step: int) -> Matrices:
    """The mean every K steps, without momentum."""
    ends = (step + 1) % BLOCK.block_steps == 0
    own, mean = np.eye(num_learners), of_mean(num_learners, step)
    return own, own, mean if ends else own


STATISTICS: dict[str, Callable[[int, int], Matrices]] = {
    "allreduce": own_statistics,
    "ps-async": own_statistics,
    "ps-sync": own_statistics,
    "adpsgd-fixed": fixed_statistics,
    "adpsgd-random": functools.partial(mixed_before, functools.partial(ring_matrix, "random")),
    "adpsgd-pairs": functools.partial(mixed_before, pairs_in_turn),
    "adpsgd-d1": mean_statistics,
    "h-adpsgd": functools.partial(pair_statistics, fixed_statistics),
    "h-adpsgd by adpsgd-d1": functools.partial(pair_statistics, mean_statistics),
    "bmuf": block_statistics,
    "bmuf with nesterov": block_statistics,
}
