"""Trajectory and stability of SGD on a quadratic loss, predicted and measured.

Shapes: N learners, K steps."""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from asrtool.distributed.strategies.topology import mixing_matrix
from asrtool.predict.theory.bounds import Constants
from asrtool.predict.theory.system import SHARED, Floats, System, mixing_in_rounds, smallest_eigenvalue

NUM_WEIGHTS = 400  # weights of a simulated training


@dataclass(frozen=True)
class Step:
    """Linear step of the states; `change` is (rows, states), `noise` (rows, sources)."""

    rows: Sequence[int]
    change: Floats
    noise: Floats


@dataclass(frozen=True)
class Trajectory:
    """Mean of the replicas and their distance from it, after each of K steps."""

    gradient_K: Floats  # |grad f(mean w)|^2
    distance_K: Floats  # 1/N sum |w^i - mean w|^2

    def mean_gradient_K(self) -> Floats:
        """Return the mean up to each step, which the bounds limit."""
        means_K: Floats = np.cumsum(self.gradient_K) / np.arange(1, len(self.gradient_K) + 1)
        return means_K


def predict(system: System, constants: Constants, rate: float, num_steps: int, in_rounds: bool) -> Trajectory:
    """Return exact expectations over the noise, for the drawn rings and partners."""
    num = system.num_replicas
    mean_S = math.sqrt(2 * constants.start / constants.smoothness) * _are_weights(system, in_rounds)
    covariance_SS = np.zeros((len(mean_S), len(mean_S)))
    variance = constants.noise / system.node_size
    gradients, distances = [], []
    for step in itertools.islice(steps_of(system, constants.smoothness, rate, in_rounds), num_steps):
        second_NN = covariance_SS[:num, :num] + np.outer(mean_S[:num], mean_S[:num])
        mean_square = float(second_NN.mean())
        gradients.append(constants.smoothness**2 * mean_square)
        distances.append(float(np.trace(second_NN)) / num - mean_square)
        mean_S[step.rows] = step.change @ mean_S
        covariance_SS[step.rows] = step.change @ covariance_SS
        covariance_SS[:, step.rows] = covariance_SS @ step.change.T
        covariance_SS[np.ix_(step.rows, step.rows)] += variance * step.noise @ step.noise.T
    return Trajectory(np.array(gradients), np.array(distances))


def draw(system: System, constants: Constants, rate: float, num_steps: int, in_rounds: bool) -> Trajectory:
    """Simulate one training of NUM_WEIGHTS weights by the same rule."""
    random = np.random.default_rng(1)
    num = system.num_replicas
    begin = math.sqrt(2 * constants.start / constants.smoothness / NUM_WEIGHTS)
    state_SP = np.tile(begin * _are_weights(system, in_rounds)[:, None], NUM_WEIGHTS)
    scale = math.sqrt(constants.noise / system.node_size / NUM_WEIGHTS)
    gradients, distances = [], []
    for step in itertools.islice(steps_of(system, constants.smoothness, rate, in_rounds), num_steps):
        mean_P = state_SP[:num].mean(axis=0)
        gradients.append(constants.smoothness**2 * float(mean_P @ mean_P))
        distances.append(float(((state_SP[:num] - mean_P) ** 2).sum()) / num)
        noise_P = scale * random.standard_normal((step.noise.shape[1], NUM_WEIGHTS))
        state_SP[step.rows] = step.change @ state_SP + step.noise @ noise_P
    return Trajectory(np.array(gradients), np.array(distances))


def steps_of(system: System, curvature: float, rate: float, in_rounds: bool) -> Iterator[Step]:
    """Yield endless steps: common rounds, or one learner after another."""
    if system.outer in SHARED:
        return _shared_steps(system, curvature, rate)
    if not in_rounds:
        return _own_steps(system, curvature, rate)
    return (_block_steps if system.outer == "bmuf" else _round_steps)(system, curvature, rate)


def _are_weights(system: System, in_rounds: bool) -> Floats:
    """Return 1 for each state of weights, 0 for the momentum of a block."""
    first = next(steps_of(system, 1.0, 1.0, in_rounds))
    return np.append(np.ones(first.change.shape[1] - 1), float(system.outer != "bmuf"))


def _round_steps(system: System, curvature: float, rate: float) -> Iterator[Step]:
    """Yield steps W <- W T - rate (beta W + noise)."""
    num = system.num_replicas
    # with one copy of the weights, gradients are averaged
    noise = np.full((1, system.num_steppers), -rate / system.num_steppers) if num == 1 else -rate * np.eye(num)
    shrink = rate * curvature * np.eye(num)
    mixing = mixing_in_rounds(system)
    assert mixing
    for number in itertools.count():
        matrix = mixing.matrix_NN
        if system.ring not in ("", "fixed") and num > 1:
            matrix = mixing_matrix(system.ring_at(number))
        yield Step(range(num), matrix.T - shrink, noise)


def _block_steps(system: System, curvature: float, rate: float) -> Iterator[Step]:
    """Yield steps of bmuf: H - 1 local ones, then the block update.

    D <- eta D + zeta (mean W - w'), w' <- w' + D, W <- w'. With `nesterov` the state of w' is the block's start, eta
    D ahead.
    """
    num, block = system.num_replicas, system.settings
    own = np.eye(num + 2)
    own[:num, :num] *= 1 - rate * curvature
    noise = -rate * np.eye(num + 2, num)
    eta, zeta = block.block_momentum, block.block_rate
    momentum = np.zeros(num + 2)
    momentum[:num], momentum[num], momentum[num + 1] = zeta / num, -zeta, eta
    start = np.zeros(num + 2)
    start[num] = 1.0
    start += momentum
    if block.nesterov:
        start[num + 1] -= eta
        start += eta * momentum
    ends = np.vstack([np.tile(start, (num + 1, 1)), momentum])
    for number in itertools.count(1):
        last = number % block.block_steps == 0
        yield Step(range(num + 2), ends @ own if last else own, ends @ noise if last else noise)


def _shared_steps(system: System, curvature: float, rate: float) -> Iterator[Step]:
    """Yield steps on shared weights in turn; each gradient is L - 1 steps old."""
    num = system.num_learners
    change = np.eye(num, k=-1)
    change[0, 0] += 1
    change[0, -1] -= rate * curvature
    noise = np.zeros((num, 1))
    noise[0] = -rate
    while True:
        yield Step(range(num), change, noise)


def _own_steps(system: System, curvature: float, rate: float) -> Iterator[Step]:
    """Yield steps of a learner drawn by speed, which keeps its weights and exchanges."""
    num, b = system.num_replicas, system.weight
    random = np.random.default_rng((system.seed, num))
    chances_N = system.speeds_N / system.speeds_N.sum()
    while True:
        i = int(random.choice(num, p=chances_N))
        j = int(random.choice(num, p=system.partners_NN[i])) if system.partners_NN[i].any() else i
        rows = [i, num + i] if j == i else [i, num + i, j]
        change, noise = np.zeros((len(rows), 2 * num)), np.zeros((len(rows), 1))
        stepped = np.zeros(2 * num)
        stepped[i], stepped[num + i] = 1.0, -rate * curvature
        change[:2], noise[:2] = stepped, -rate
        if j != i:
            change[2, j] = 1.0
            between = b * (change[2] - stepped)
            change[0] += between
            change[2] -= between
            noise[0, 0], noise[2, 0] = -rate * (1 - b), -rate * b
        yield Step(rows, change, noise)


MAX_LIMIT = 4.0  # limit of a stable rate: 2 (1 + mu)
MIN_LIMIT = 1e-7
NUM_TRIED = 400
SLACK = 1e-9


@dataclass(frozen=True)
class Stable:
    """Largest stable rates of the mean and the differences; None if unknown."""

    mean: float | None
    apart: float | None


def largest_stable(system: System, momentum: float) -> Stable:
    """Return the largest stable rates for equally fast learners."""
    if system.outer == "hogwild" and momentum:  # a momentum each
        return Stable(None, None)
    if system.outer in SHARED:
        return Stable(delayed(system.num_learners - 1, momentum), None)
    if system.outer == "bmuf":
        return Stable(None if momentum else _blocks(system), None)
    mixing, mean = mixing_in_rounds(system), 2 * (1 + momentum)
    if mixing is None or system.num_replicas == 1 or system.has_own_ring:
        return Stable(mean, None)
    smallest = smallest_eigenvalue(mixing.matrix_NN)
    if system.ring == "random":
        return Stable(mean, in_mean_square(smallest, mixing.rate, momentum))
    return Stable(mean, (1 + smallest) * (1 + momentum))


def delayed(delay: int, momentum: float) -> float:
    """Return the limit for gradients that are `delay` steps old.

    The roots of (z - 1)(z - mu) z^(delay - 1) + x are inside the unit circle for a small x; at the limit the first
    reaches z = exp(i theta). The product's angle is pi there.
    """
    if not delay:
        return 2 * (1 + momentum)

    def angle(theta: float) -> float:
        return math.pi / 2 + theta / 2 + cmath.phase(cmath.rect(1, theta) - momentum) + (delay - 1) * theta

    z = cmath.rect(1, _bisect(lambda theta: angle(theta) < math.pi, 0.0, math.pi))
    return abs(z - 1) * abs(z - momentum)


def in_mean_square(eigenvalue: float, rate: float, momentum: float) -> float:
    """Return the mean-square limit for E[T] = `eigenvalue` and E[T T'] = `rate`.

    T is drawn anew at each step. With v = rate m the moments (E w^2, E w v, E v^2) follow a linear map.
    """

    def radius(x: float) -> float:
        mu, towards = momentum, eigenvalue - x
        moments = [
            [rate - 2 * x * eigenvalue + x**2, -2 * mu * towards, mu**2],
            [towards * x, mu * towards - mu * x, -(mu**2)],
            [x**2, 2 * mu * x, mu**2],
        ]
        return float(np.abs(np.linalg.eigvals(np.array(moments))).max())

    return _first_above_one(radius)


def _blocks(system: System) -> float:
    """Return the limit of bmuf, whose block maps the weights at its start, and D."""
    block = system.settings

    def radius(x: float) -> float:
        change = (1 - x) ** block.block_steps - 1
        eta, zeta = block.block_momentum, block.block_rate
        if block.nesterov:  # D' = eta D + zeta change w, w' = w - eta D + (1 + eta) D'
            matrix = [[1 + (1 + eta) * zeta * change, eta**2], [zeta * change, eta]]
        else:
            matrix = [[1 + zeta * change, eta], [zeta * change, eta]]
        return float(np.abs(np.linalg.eigvals(np.array(matrix))).max())

    return _first_above_one(radius)


def _first_above_one(radius: Callable[[float], float]) -> float:
    tried = np.geomspace(MIN_LIMIT, MAX_LIMIT, NUM_TRIED).tolist()
    above = next((i for i, x in enumerate(tried) if radius(x) > 1 + SLACK), None)
    if above is None:
        return MAX_LIMIT
    return _bisect(lambda x: radius(x) <= 1 + 1e-13, tried[above - 1] if above else 0.0, tried[above])


def _bisect(is_below: Callable[[float], bool], low: float, high: float) -> float:
    """Return the upper end of the range where `is_below`."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low
