"""Speed of consensus: the expected mixing matrix of a step, and its eigenvalues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asrtool.distributed.strategies.topology import mixing_matrix
from asrtool.predict.theory.system import Floats, System

TENTH = 0.1
NOTHING_LEFT = 1e-12  # of the squared distance: rounding


@dataclass(frozen=True)
class Mixing:
    """Mixing of a full-speed step, with others' steps by their speed.

    `rate` is the largest expected fraction of the squared distance from the mean that is left (rho of
    docs/theory.md); `num_steps` is the number of steps, above one for bmuf only.
    """

    matrix_NN: Floats  # E[T]
    rate: float
    num_steps: int = 1

    @property
    def second_eigenvalue(self) -> float:
        """The second largest modulus of an eigenvalue of E[T]; 0 for one replica."""
        return 1 - self.gap

    @property
    def gap(self) -> float:
        """1 - |lambda_2| of E[T]: the smallest expected loss of distance from the mean."""
        moduli = np.sort(np.abs(np.linalg.eigvals(self.matrix_NN)))
        return float(1 - moduli[-2]) if len(moduli) > 1 else 1.0

    @property
    def steps_to_tenth(self) -> float:
        """Return the steps until the distance from the mean is a tenth, maybe infinite."""
        if not self.rate:
            return self.num_steps
        if self.rate >= 1 - NOTHING_LEFT:
            return math.inf
        return self.num_steps * 2 * math.log(TENTH) / math.log(self.rate)


def mixing_in_rounds(system: System) -> Mixing | None:
    """Return the mixing of common rounds; None if pairs exchange in turn."""
    num, outer = system.num_replicas, system.outer
    if num == 1 or outer == "adpsgd-d1":
        return Mixing(np.full((num, num), 1 / num), 0.0)
    if outer == "bmuf":
        return Mixing(np.full((num, num), 1 / num), 0.0, system.settings.block_steps)
    if outer == "none":
        return Mixing(np.eye(num), 1.0)
    if outer == "adpsgd-pairs":
        return None
    if system.ring == "random":
        matrix = mixing_matrix(range(num))
        return Mixing(redrawn(matrix), _second(redrawn(matrix @ matrix.T)))
    matrices = [mixing_matrix(order) for order in system.rings()]
    return Mixing(np.mean(matrices, axis=0), _second(np.mean([matrix @ matrix.T for matrix in matrices], axis=0)))


def mixing_one_by_one(system: System) -> Mixing | None:
    """Return the mixing of steps in random order; None for common rounds.

    An exchange of i and j is T = 1 - b d d' with d = e_i - e_j, so T T' = 1 - 2 b (1 - b) d d'. A step of any replica
    has on average E[T] = 1 - (b / S) Lap(R). R[i, j] are exchanges by speed and S is the sum of speeds.
    """
    if system.num_replicas == 1 or not system.partners_NN.any():
        return None
    mean_NN, square_NN = moments_of_step(system)
    num_steps = system.speeds_N.sum()
    return Mixing(_power(mean_NN, num_steps), float(_second(square_NN) ** num_steps))


def rate_of_any_ring(num_replicas: int) -> float:
    """Return the `rate` of a round on a ring; all orders have the same eigenvalues."""
    matrix = mixing_matrix(range(num_replicas))
    return _second(matrix @ matrix.T)


def rate_of_step(system: System) -> float:
    """Return `rate` of one step of any replica, if they exchange in turn."""
    return _second(moments_of_step(system)[1])


def moments_of_step(system: System) -> tuple[Floats, Floats]:
    """Return E[T] and E[T T'] of a step of a replica drawn by speed."""
    b, num = system.weight, system.num_replicas
    laplacian = laplacian_of(system.speeds_N[:, None] * system.partners_NN) / system.speeds_N.sum()
    return np.eye(num) - b * laplacian, np.eye(num) - 2 * b * (1 - b) * laplacian


def laplacian_of(rates_NN: Floats) -> Floats:
    """Return the sum of rates_NN[i, j] (e_i - e_j)(e_i - e_j)'."""
    both = rates_NN + rates_NN.T
    laplacian: Floats = np.diag(both.sum(axis=0)) - both
    return laplacian


def redrawn(matrix_NN: Floats) -> Floats:
    """Return E[P' M P] over permutations: one diagonal and one other value."""
    num = len(matrix_NN)
    diagonal = np.trace(matrix_NN) / num
    beside = (matrix_NN.sum() - np.trace(matrix_NN)) / (num * (num - 1))
    both: Floats = np.full((num, num), beside) + (diagonal - beside) * np.eye(num)
    return both


def eigenvalues_apart(matrix_NN: Floats) -> Sequence[float]:
    """Return the eigenvalues of a mixing matrix without the mean's 1."""
    num = len(matrix_NN)
    return list(np.sort(np.linalg.eigvalsh(matrix_NN - np.full((num, num), 2 / num)))[1:])


def _second(square_NN: Floats) -> float:
    """Return the largest eigenvalue of E[T T'] without the mean's."""
    num = len(square_NN)
    rate = float(np.linalg.eigvalsh(square_NN - np.full((num, num), 1 / num))[-1])
    return rate if rate > NOTHING_LEFT else 0.0


def _power(matrix_NN: Floats, exponent: float) -> Floats:
    values, vectors = np.linalg.eigh(matrix_NN)
    power: Floats = (vectors * np.maximum(values, 0.0) ** exponent) @ vectors.T
    return power
