"""The largest learning rate at which a quadratic does not diverge, exactly: of rate x curvature, a number without unit.

With momentum as torch has it, m <- mu m + g and w <- w - rate m, each replica with its own.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from asrtool.predict.theory.mixing import eigenvalues_apart, mixing_in_rounds
from asrtool.predict.theory.system import SHARED, System

LARGEST = 4.0  # of a stable one: 2 (1 + mu)
SMALLEST = 1e-7
NUM_TRIED = 400
SLACK = 1e-9


@dataclass(frozen=True)
class Stable:
    """Of the mean of the replicas, and of their differences; None where that is not known or there are none."""

    mean: float | None
    apart: float | None


def largest_stable(system: System, momentum: float) -> Stable:
    """Where learners are equally fast and exchange in rounds, or step on shared weights one after the other."""
    if system.outer in SHARED:
        if momentum and system.outer == "hogwild":  # a momentum each
            return Stable(None, None)
        return Stable(delayed(system.num_learners - 1, momentum), None)
    if system.outer == "bmuf":
        return Stable(None if momentum else _blocks(system), None)
    mixing = mixing_in_rounds(system)
    mean = 2 * (1 + momentum)
    if mixing is None or system.num_replicas == 1:
        return Stable(mean, None)
    if system.ring == "random":
        eigenvalue = eigenvalues_apart(mixing.matrix_NN)[0]
        return Stable(mean, in_mean_square(eigenvalue, mixing.rate, momentum))
    if system.has_own_ring:
        return Stable(mean, None)
    smallest = min(eigenvalues_apart(mixing.matrix_NN))
    return Stable(mean, (1 + smallest) * (1 + momentum))


def delayed(delay: int, momentum: float) -> float:
    """Of one set of weights whose gradients are all `delay` steps old: roots of (z - 1)(z - mu) z^(delay - 1) + x.

    All lie inside the unit circle for a small x; x is the largest where the first comes to it, at z = exp(i theta). The
    angle of the product there is pi, and grows with theta from pi / 2; the larger theta, the larger is x.
    """
    if not delay:
        return 2 * (1 + momentum)

    def angle(theta: float) -> float:
        return math.pi / 2 + theta / 2 + cmath.phase(cmath.rect(1, theta) - momentum) + (delay - 1) * theta

    low, high = 0.0, math.pi
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if angle(middle) < math.pi else (low, middle)
    z = cmath.rect(1, low)
    return abs(z - 1) * abs(z - momentum)


def in_mean_square(eigenvalue: float, rate: float, momentum: float) -> float:
    """Where E[T] is `eigenvalue` and E[T T'] is `rate` for all differences alike, and T is drawn anew at each step.

    With v = rate m the moments (E w^2, E w v, E v^2) follow a linear map.
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
    """Of bmuf without other momentum: a block maps the weights where it begins, and D."""
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
    tried = np.geomspace(SMALLEST, LARGEST, NUM_TRIED)
    above = next((i for i, x in enumerate(tried) if radius(float(x)) > 1 + SLACK), None)
    if above is None:
        return LARGEST
    low, high = (float(tried[above - 1]) if above else 0.0), float(tried[above])
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if radius(middle) <= 1 + 1e-13 else (low, middle)
    return low
