"""Staleness of gradients: updates by others between reading and updating weights.

Model: replica i takes 1 / speed for each step, always (constant) or on average (exponential). Each step of another, j,
is one of these changes with a probability. Phases are independent of one another. Messages take no time.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.predict.theory.system import SHARED, Floats, System

TIMES = ("constant", "exponential")
MAX_LENGTH = 2**22  # longest distribution
NEGLIGIBLE = 1e-12
RARE = 1e-9


@dataclass(frozen=True)
class Staleness:
    """Distribution of staleness: `fractions[s]` of updates had s changes by others."""

    fractions: Floats

    @property
    def mean(self) -> float:
        return float(self.fractions @ np.arange(len(self.fractions)))

    @property
    def bound(self) -> int:
        """Largest staleness; of unbounded times, exceeded by less than NEGLIGIBLE."""
        return len(self.fractions) - 1

    @property
    def largest(self) -> int:
        """Largest staleness in practice: fewer than one in a thousand million exceed it."""
        beyond_S = np.cumsum(self.fractions[::-1])[::-1]
        return int(np.flatnonzero(beyond_S >= RARE)[-1])

    def quantile(self, fraction: float) -> int:
        """Return the smallest s not exceeded by at least `fraction` of the updates."""
        return int(np.searchsorted(np.cumsum(self.fractions), fraction - NEGLIGIBLE))


def recorded_staleness(system: System, times: str) -> list[Staleness]:
    """Return the staleness of each replica as `learners/R.jsonl` has it.

    It counts steps of others on shared weights, or exchanges of a replica. An exchange that a replica begins takes
    place during its next step, so each has one such.
    """
    if system.outer in SHARED:
        return steps_of_others(system, times)
    num = system.num_steppers
    touches_NN = system.partners_NN if system.num_replicas == num else np.zeros((num, num))
    own_N = np.rint(touches_NN.sum(axis=1)).astype(int)
    return [_counts(system.speeds_N, touches_NN[:, i], i, int(own_N[i]), times) for i in range(num)]


def steps_of_others(system: System, times: str) -> list[Staleness]:
    """Return tau of the theorems by replica: steps of others; 0 in lock-step."""
    touches_N = np.full(system.num_steppers, float(system.asynchronous))
    return [_counts(system.speeds_N, touches_N, i, 0, times) for i in range(system.num_steppers)]


def total_staleness(by_replica: list[Staleness], speeds_N: Floats) -> Staleness:
    """Return the staleness of an update of any replica."""
    total = np.zeros(max(len(one.fractions) for one in by_replica))
    for one, weight in zip(by_replica, speeds_N / speeds_N.sum(), strict=True):
        total[: len(one.fractions)] += weight * one.fractions
    return Staleness(total)


def _counts(speeds_N: Floats, touches_N: Floats, i: int, own: int, times: str) -> Staleness:
    """Return the staleness of replica i, which a step of j counts for with a chance."""
    others = np.flatnonzero(touches_N > 0)
    others = others[others != i]
    ratios, chances = (speeds_N[others] / speeds_N[i]).round(12), touches_N[others]
    alike = Counter(zip(ratios.tolist(), chances.tolist(), strict=True))
    return _count_alike(tuple(sorted(alike.items())), own, times)


@functools.lru_cache(maxsize=64)  # most replicas are like others
def _count_alike(alike: tuple[tuple[tuple[float, float], int], ...], own: int, times: str) -> Staleness:
    """Return the staleness among `alike`: ((ratio of speeds, chance), number)."""
    other_counts = (_constant_times if times == "constant" else _exponential_times)(alike)
    return Staleness(np.concatenate([np.zeros(own), other_counts]))


def _constant_times(alike: tuple[tuple[tuple[float, float], int], ...]) -> Floats:
    """Return the distribution of floor(ratio) steps or one more, counted by chance.

    It is the distribution of a sum, by its generating function at the roots of unity.
    """
    length = _checked(sum(int(np.ceil(ratio)) * num for (ratio, _), num in alike) + 1)
    z = np.exp(-2j * np.pi * np.arange(length) / length)
    generating = np.ones(length, complex)
    for (ratio, chance), num in alike:
        whole = int(ratio)
        one = 1 - chance + chance * z
        generating *= one ** (whole * num) * (1 - (ratio - whole) * (1 - one)) ** num
    fractions: Floats = np.maximum(np.fft.ifft(generating).real, 0.0)
    return fractions


def _exponential_times(alike: tuple[tuple[tuple[float, float], int], ...]) -> Floats:
    """Return the geometric distribution: a step ends with chance 1 / (1 + all ratios)."""
    ratio = sum(ratio * chance * num for (ratio, chance), num in alike)
    goes_on = ratio / (1 + ratio)
    length = _checked(1 if not ratio else int(np.log(NEGLIGIBLE) / np.log(goes_on)) + 2)
    fractions = (1 - goes_on) * np.power(goes_on, np.arange(length, dtype=np.float64))
    fractions[-1] += 1 - fractions.sum()
    return fractions


def _checked(length: int) -> int:
    if length > MAX_LENGTH:
        what = f"while the slowest learner makes a step, others make up to {length:,}"
        raise AsrtoolError(what, "choose a smaller factor of --slow, or fewer --num-learners")
    return length
