"""How many changes by others lie between the weights that a gradient is computed on and its update.

Model: replica i takes 1 / speed for each step, always (constant) or on average (exponential), and each step of another,
j, is one of these changes with a probability. Phases are independent of one another. Messages take no time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from asrtool.theory.system import SHARED, Floats, System

TIMES = ("constant", "exponential")
MOST = 2**17  # counts as high, or higher, are one
NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class Staleness:
    """`fractions[s]`: of all updates, those with s changes by others."""

    fractions: Floats

    @property
    def mean(self) -> float:
        return float(self.fractions @ np.arange(len(self.fractions)))

    @property
    def largest(self) -> int:
        """With a fraction that counts."""
        return int(np.flatnonzero(self.fractions > NEGLIGIBLE)[-1])

    def quantile(self, fraction: float) -> int:
        """The smallest s such that at least `fraction` of the updates have at most s."""
        return int(np.searchsorted(np.cumsum(self.fractions), fraction - NEGLIGIBLE))


def recorded_staleness(system: System, times: str) -> list[Staleness]:
    """By replica, as `learners/R.jsonl` has it: steps of others on shared weights, or exchanges of a replica.

    An exchange that a replica begins takes place during its next step, so each has one such.
    """
    if system.outer in SHARED:
        return steps_of_others(system, times)
    num = system.num_steppers
    touches_NN = system.partners_NN if system.num_replicas == num else np.zeros((num, num))
    own_N = np.rint(touches_NN.sum(axis=1)).astype(int)
    return [_counts(system.speeds_N, touches_NN[:, i], i, int(own_N[i]), times) for i in range(num)]


def steps_of_others(system: System, times: str) -> list[Staleness]:
    """By replica: steps that others made meanwhile, tau of the theorems; none where all step together."""
    num = system.num_steppers
    touches_NN = np.ones((num, num)) if system.asynchronous else np.zeros((num, num))
    return [_counts(system.speeds_N, touches_NN[:, i], i, 0, times) for i in range(num)]


def of_all(by_replica: list[Staleness], speeds_N: Floats) -> Staleness:
    """Of an update of any replica."""
    length = max(len(one.fractions) for one in by_replica)
    padded = [np.pad(one.fractions, (0, length - len(one.fractions))) for one in by_replica]
    return Staleness(np.average(padded, axis=0, weights=speeds_N))


def _counts(speeds_N: Floats, touches_N: Floats, i: int, own: int, times: str) -> Staleness:
    others = [j for j in range(len(speeds_N)) if j != i and touches_N[j] > 0]
    ratios, chances = speeds_N[others] / speeds_N[i], touches_N[others]
    of_others = _of_constant(ratios, chances) if times == "constant" else _of_exponential(float(ratios @ chances))
    fractions = np.concatenate([np.zeros(own), of_others])
    if len(fractions) > MOST:
        fractions = np.append(fractions[:MOST], fractions[MOST:].sum())
    return Staleness(fractions)


def _of_constant(ratios: Floats, chances: Floats) -> Floats:
    """Of j fall floor(ratio) steps into one of i, or one more, each of which counts with its chance.

    The distribution of a sum, by its generating function at the roots of unity.
    """
    length = int(np.ceil(ratios - NEGLIGIBLE).sum()) + 1
    z = np.exp(-2j * np.pi * np.arange(length) / length)
    generating = np.ones(length, complex)
    for (ratio, chance), times in Counter(zip(ratios.round(12).tolist(), chances.tolist(), strict=True)).items():
        whole = int(ratio)
        one = 1 - chance + chance * z
        generating *= (one**whole * (1 - (ratio - whole) * (1 - one))) ** times
    fractions: Floats = np.maximum(np.fft.ifft(generating).real, 0.0)
    return fractions


def _of_exponential(ratio: float) -> Floats:
    """Geometric: the next of all changes is the end of the step with the chance 1 / (1 + ratio)."""
    goes_on = ratio / (1 + ratio)
    length = 1 if not ratio else min(MOST + 1, int(np.log(NEGLIGIBLE) / np.log(goes_on)) + 2)
    fractions = (1 - goes_on) * np.power(goes_on, np.arange(length, dtype=np.float64))
    fractions[-1] += 1 - fractions.sum()
    return fractions
