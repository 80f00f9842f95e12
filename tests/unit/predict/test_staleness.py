"""Distributions of staleness against learners that step one after the other in virtual time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from systems import system_of

from asrtool.errors import AsrtoolError
from asrtool.predict.theory.staleness import TIMES, recorded_staleness, steps_of_others
from asrtool.predict.theory.system import System

MAX_LENGTH = 60


def simulate(system: System, times: str, counts_steps: bool, runs: int, steps: int) -> np.ndarray:
    """Fractions (N, MAX_LENGTH): of the updates of each replica those with so many changes, event by event."""
    random = np.random.default_rng(7)
    num = system.num_steppers
    counts = np.zeros((num, MAX_LENGTH))
    chances = [row / row.sum() if row.any() else None for row in system.partners_NN] if system.num_replicas > 1 else []
    for _ in range(runs):
        periods = 1 / system.speeds_N
        ends = periods * (random.random(num) if times == "constant" else random.exponential(size=num))
        changes, warm = np.zeros(num, int), np.zeros(num, bool)
        for _ in range(steps * num):
            i = int(ends.argmin())
            counts[i, min(changes[i], MAX_LENGTH - 1)] += warm[i]
            changes[i], warm[i] = 0, True
            ends[i] += periods[i] * (1.0 if times == "constant" else random.exponential())
            if counts_steps or not chances:
                changes[np.arange(num) != i] += 1
            elif chances[i] is not None:
                changes[[i, random.choice(num, p=chances[i])]] += 1
    return counts / counts.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("slow", [{}, {0: 2.5}])
@pytest.mark.parametrize("name", ["ps-async", "adpsgd-fixed", "adpsgd-random", "adpsgd-pairs"])
def test_staleness_is_that_of_events_in_virtual_time(name: str, slow: dict[int, float], times: str) -> None:
    system = system_of(name, 4, slow)
    runs, steps = (300, 12) if times == "constant" else (3, 1200)
    for found, drawn in (
        (recorded_staleness(system, times), simulate(system, times, False, runs, steps)),
        (steps_of_others(system, times), simulate(system, times, True, runs, steps)),
    ):
        for one, drawn_S in zip(found, drawn, strict=True):
            length = max(MAX_LENGTH, len(one.fractions))
            expected_S = np.pad(one.fractions, (0, length - len(one.fractions)))
            expected_S = np.append(expected_S[: MAX_LENGTH - 1], expected_S[MAX_LENGTH - 1 :].sum())
            np.testing.assert_allclose(drawn_S, expected_S, atol=0.03)
            assert_same_mean_and_tails(drawn_S, expected_S, runs if times == "constant" else runs * steps)


def assert_same_mean_and_tails(drawn_S: np.ndarray, expected_S: np.ndarray, num: int) -> None:
    """Check the mean and three tails of `num` independent updates within four standard errors."""
    s = np.arange(len(expected_S))
    mean = float(expected_S @ s)
    deviation = math.sqrt(max(0.0, float(expected_S @ s**2) - mean**2))
    assert abs(float(drawn_S @ s) - mean) <= 4 * deviation / math.sqrt(num) + 1e-9
    for quantile in (0.5, 0.9, 0.99):
        above = s > np.searchsorted(np.cumsum(expected_S), quantile - 1e-12)
        tail, drawn = float(expected_S[above].sum()), float(drawn_S[above].sum())
        assert abs(drawn - tail) <= 4 * math.sqrt(tail * (1 - tail) / num) + 1e-9


def test_the_bound_of_a_staleness_counts_however_rare_it_is() -> None:
    """All 15 others end two steps during one of the learner that is 1.05 times slower, with probability 0.05^15."""
    slowest = steps_of_others(system_of("ps-async", 16, {0: 1.05}), "constant")[0]
    assert slowest.fractions[-1] < 1e-15
    assert slowest.bound == 30
    assert slowest.largest == 15 + np.flatnonzero(scipy.stats.binom.sf(np.arange(16), 15, 0.05) < 1e-9)[0]


def test_of_a_learner_that_is_thousands_of_times_slower_all_updates_count() -> None:
    system = system_of("adpsgd-random", 128, {3: 1000.0})
    for times in TIMES:
        slow = steps_of_others(system, times)[3]
        assert slow.fractions.sum() == pytest.approx(1)
        assert slow.mean == pytest.approx(127_000, rel=1e-6)
    with pytest.raises(AsrtoolError, match="a smaller factor"):
        steps_of_others(system_of("ps-async", 1000, {3: 10_000.0}), "constant")
