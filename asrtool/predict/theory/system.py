"""A strategy in theory: replicas of the weights, speeds, exchanges, mixing."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrtool.distributed.strategies.topology import EDGE_WEIGHT, PAIR_WEIGHT, check_ring, mixing_matrix
from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.distributed import Distributed
from asrtool.settings.schema import Choice

Floats = NDArray[np.float64]

ONE_COPY = ("single", "allreduce", "ps-sync")  # the same weights at all learners after each step
SHARED = ("ps-async", "hogwild")  # one set of weights, stepped on by each learner at its own time
RINGS = {"adpsgd-fixed": "fixed", "adpsgd-random": "random"}
MAX_LEARNERS = 1024  # matrices have that size squared
DRAWN_STEPS = 2000  # steps drawn of a custom ring, whose law is unknown; fewer of many learners
DRAWN_VALUES = 2**22  # values in their matrices
TENTH = 0.1
ROUNDING = 1e-12  # rounding of the squared distance


@dataclass(frozen=True)
class System:
    """Learners of a strategy; a step of learner i takes `slow[i]` times as long."""

    strategy: Choice
    num_learners: int
    slow: Mapping[int, float]
    seed: int = 1

    def __post_init__(self) -> None:
        """Raise AsrtoolError for a strategy without a theory or numbers that do not fit."""
        name = self.strategy.name
        if ":" in name:
            what = f"nothing is known of strategy {name}, one of your own"
            raise AsrtoolError(what, f"choose one of {', '.join(registry.names('strategy'))}")
        if self.num_learners > MAX_LEARNERS:
            what = f"--num-learners {self.num_learners}: matrices of so many do not fit"
            raise AsrtoolError(what, f"choose {MAX_LEARNERS} at most; what grows with the number shows before")
        try:
            Distributed(self.strategy).check_learners(self.num_learners)
        except ValueError as error:
            raise AsrtoolError(str(error), "or set another --num-learners") from error
        for learner in self.slow:
            if learner >= self.num_learners:
                what = f"--slow {learner}: there are {self.num_learners} learners"
                raise AsrtoolError(what, f"choose 0 to {self.num_learners - 1}")
        if name == "adpsgd":
            check_ring(self.ring, registry.load("ring", self.ring), self.num_learners, self.seed)

    @property
    def name(self) -> str:
        return self.strategy.name

    @property
    def settings(self) -> Any:
        return self.strategy.settings

    @property
    def outer(self) -> str:
        """The strategy between replicas."""
        return str(self.settings.outer) if self.name == "h-adpsgd" else self.name

    @property
    def node_size(self) -> int:
        """Learners of a replica: of a node, whose gradients are averaged; by default all."""
        return int(self.settings.node_size or self.num_learners) if self.name == "h-adpsgd" else 1

    @property
    def num_replicas(self) -> int:
        """N: sets of weights that may differ."""
        return 1 if self.outer in (*ONE_COPY, *SHARED) else self.num_steppers

    @property
    def num_steppers(self) -> int:
        """Replicas that step independently: learners, or nodes."""
        return self.num_learners // self.node_size

    @property
    def ring(self) -> str:
        """Name of the ring on which replicas exchange, or an empty string."""
        return str(self.settings.ring) if self.name == "adpsgd" else RINGS.get(self.outer, "")

    @property
    def has_own_ring(self) -> bool:
        """True if the ring is custom, with unknown probabilities."""
        return self.ring not in ("", "fixed", "random")

    @property
    def asynchronous(self) -> bool:
        """True if a learner steps without waiting for others."""
        return bool(self.ring) or self.outer in (*SHARED, "adpsgd-pairs", "none")

    @property
    def speeds_N(self) -> Floats:
        """Steps in the time of one step at full speed; the slowest learner of a node."""
        factors_L = np.array([self.slow.get(learner, 1.0) for learner in range(self.num_learners)])
        speeds_N: Floats = 1 / factors_L.reshape(self.num_steppers, -1).max(axis=1)
        return speeds_N if self.asynchronous else np.full_like(speeds_N, speeds_N.min())

    @property
    def weight(self) -> float:
        """Fraction of the difference that both ends of an exchange move."""
        return PAIR_WEIGHT if self.outer == "adpsgd-pairs" else EDGE_WEIGHT

    @functools.cached_property
    def rings(self) -> list[list[int]]:
        """Order of the fixed ring, or orders of the first steps."""
        num_steps = 1 if self.ring == "fixed" else min(DRAWN_STEPS, max(16, DRAWN_VALUES // self.num_replicas**2))
        return [self.ring_at(step) for step in range(num_steps)]

    def ring_at(self, step: int) -> list[int]:
        """Return the ring order of one step."""
        return list(registry.load("ring", self.ring)(self.num_replicas, step, self.seed))

    @functools.cached_property
    def partners_NN(self) -> Floats:
        """[i, j]: the probability that replica i begins an exchange with replica j.

        Rows sum to 1, or to 0 if i begins none. A custom ring has the frequencies of its first steps.
        """
        num = self.num_replicas
        partners_NN = np.zeros((num, num))
        if num == 1 or self.outer not in ("adpsgd-pairs", *RINGS, "adpsgd"):
            return partners_NN
        if self.outer == "adpsgd-pairs":
            partners_NN[::2, 1::2] = 1 / (num // 2)
        elif self.ring == "random":
            partners_NN[:] = (1 - np.eye(num)) / (num - 1)
        else:
            for order in self.rings:
                partners_NN[order, np.roll(order, -1)] += 1 / len(self.rings)
        return partners_NN


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
        if self.rate >= 1 - ROUNDING:
            return math.inf
        return self.num_steps * 2 * math.log(TENTH) / math.log(self.rate)


def mixing_in_rounds(system: System) -> Mixing | None:
    """Return the mixing of common rounds; None if pairs exchange in turn."""
    num, outer = system.num_replicas, system.outer
    if num == 1 or outer in ("adpsgd-d1", "bmuf"):
        num_steps = system.settings.block_steps if num > 1 and outer == "bmuf" else 1
        return Mixing(np.full((num, num), 1 / num), 0.0, num_steps)
    if outer == "none":
        return Mixing(np.eye(num), 1.0)
    if outer == "adpsgd-pairs":
        return None
    if system.ring == "random":
        matrix = mixing_matrix(range(num))
        return Mixing(redrawn(matrix), _second(redrawn(matrix @ matrix.T)))
    matrices = [mixing_matrix(order) for order in system.rings]
    return Mixing(np.mean(matrices, axis=0), _second(np.mean([matrix @ matrix.T for matrix in matrices], axis=0)))


def mixing_one_by_one(system: System) -> Mixing | None:
    """Return the mixing of steps in random order; None for common rounds."""
    if system.num_replicas == 1 or not system.partners_NN.any():
        return None
    mean_NN, square_NN = moments_of_step(system)
    num_steps = system.speeds_N.sum()
    values, vectors = np.linalg.eigh(mean_NN)
    power_NN: Floats = (vectors * np.maximum(values, 0.0) ** num_steps) @ vectors.T
    return Mixing(power_NN, float(_second(square_NN) ** num_steps))


def rate_of_any_ring(num_replicas: int) -> float:
    """Return the `rate` of a round on a ring; all orders have the same eigenvalues."""
    matrix = mixing_matrix(range(num_replicas))
    return _second(matrix @ matrix.T)


def rate_of_step(system: System) -> float:
    """Return `rate` of one step of any replica, if they exchange in turn."""
    return _second(moments_of_step(system)[1])


def moments_of_step(system: System) -> tuple[Floats, Floats]:
    """Return E[T] and E[T T'] of a step of a replica drawn by speed.

    An exchange of i and j is T = 1 - b d d' with d = e_i - e_j, so T T' = 1 - 2 b (1 - b) d d'. The mean of d d' is the
    Laplacian of exchanges by speed over the sum of speeds.
    """
    b, one_NN = system.weight, np.eye(system.num_replicas)
    rates_NN = system.speeds_N[:, None] * system.partners_NN
    both_NN = rates_NN + rates_NN.T
    laplacian = (np.diag(both_NN.sum(axis=0)) - both_NN) / system.speeds_N.sum()
    return one_NN - b * laplacian, one_NN - 2 * b * (1 - b) * laplacian


def redrawn(matrix_NN: Floats) -> Floats:
    """Return E[P' M P] over permutations: one diagonal and one other value."""
    num = len(matrix_NN)
    diagonal = np.trace(matrix_NN) / num
    beside = (matrix_NN.sum() - np.trace(matrix_NN)) / (num * (num - 1))
    both: Floats = np.full((num, num), beside) + (diagonal - beside) * np.eye(num)
    return both


def smallest_eigenvalue(matrix_NN: Floats) -> float:
    """Return the smallest eigenvalue of a mixing matrix without the mean's 1."""
    num = len(matrix_NN)
    return float(np.sort(np.linalg.eigvalsh(matrix_NN - np.full((num, num), 2 / num)))[1])


def _second(square_NN: Floats) -> float:
    """Return the largest eigenvalue of E[T T'] without the mean's."""
    num = len(square_NN)
    rate = float(np.linalg.eigvalsh(square_NN - np.full((num, num), 1 / num))[-1])
    return rate if rate > ROUNDING else 0.0
