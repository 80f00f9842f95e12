"""The largest stable rate against the published figures, and against trainings just below and above it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from systems import system_of

from asrtool.distributed.strategies.topology import mixing_matrix, random_ring
from asrtool.predict.theory.quadratic import delayed, in_mean_square, largest_stable, steps_of


def test_a_step_of_delay_costs_half_the_rate_and_with_momentum_nearly_all() -> None:
    found = [delayed(delay, mu) for mu in (0.0, 0.9) for delay in (0, 1)]
    assert found == pytest.approx([2.0, 1.0, 3.8, 0.1], abs=1e-6)


@pytest.mark.parametrize("delay", [1, 2, 5, 31])
def test_plain_sgd_with_a_constant_delay_has_its_closed_form(delay: int) -> None:
    assert delayed(delay, 0.0) == pytest.approx(2 * np.sin(np.pi / (2 * (2 * delay + 1))), rel=1e-6)


@pytest.mark.parametrize("momentum", [0.5, 0.9])
@pytest.mark.parametrize("delay", [1, 3, 7])
def test_a_root_leaves_the_circle_at_the_rate_said(delay: int, momentum: float) -> None:
    product = np.polymul(np.polymul([1.0, -1.0], [1.0, -momentum]), [1.0, *[0.0] * (delay - 1)])
    for factor, diverges in ((0.999, False), (1.001, True)):
        polynomial = product.copy()
        polynomial[-1] += factor * delayed(delay, momentum)
        assert (np.abs(np.roots(polynomial)).max() > 1) == diverges


def test_rings_of_even_length_are_stable_up_to_two_thirds() -> None:
    assert largest_stable(system_of("adpsgd-fixed", 8), 0.0).apart == pytest.approx(2 / 3)
    assert largest_stable(system_of("adpsgd-d1", 8), 0.0).apart == pytest.approx(1)
    assert largest_stable(system_of("adpsgd-d1", 8), 0.9).apart == pytest.approx(1.9)
    assert largest_stable(system_of("none", 8), 0.0).apart == pytest.approx(2)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("allreduce", {}),
        ("adpsgd-fixed", {}),
        ("adpsgd-d1", {}),
        ("ps-async", {}),
        ("bmuf", {"block_steps": 3, "block_momentum": 0.5}),
        ("bmuf", {"block_steps": 3, "block_momentum": 0.5, "nesterov": True}),
        ("bmuf", {"block_steps": 4, "block_momentum": 0.0, "block_rate": 0.7}),
    ],
)
def test_a_training_diverges_just_above_and_not_just_below(name: str, settings: dict[str, object]) -> None:
    system = system_of(name, 6, **settings)
    stable = largest_stable(system, 0.0)
    most = min(value for value in (stable.mean, stable.apart) if value is not None)
    for factor, diverges in ((0.99, False), (1.01, True)):
        state = np.random.default_rng(0).standard_normal(8 if name == "bmuf" else 1 if name == "allreduce" else 6)
        before = np.linalg.norm(state)
        for step in itertools.islice(steps_of(system, factor * most, 1.0, True), 1200):
            state = step.change @ state
        assert (np.linalg.norm(state) > before) == diverges


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_random_ring_diverges_in_mean_square_just_above(momentum: float) -> None:
    num = 5
    most = largest_stable(system_of("adpsgd-random", num), momentum).apart
    assert most
    one = (num - 3) / (3 * (num - 1))
    if not momentum:
        assert most == pytest.approx(one + np.sqrt(one**2 + 1 - one))
    for factor, diverges in ((0.97, False), (1.03, True)):
        growth = mean_square_growth(num, factor * most, momentum)
        assert (growth > 1) == diverges
    assert in_mean_square(1.0, 1.0, momentum) == pytest.approx(2 * (1 + momentum), rel=1e-4)


def mean_square_growth(num: int, x: float, momentum: float) -> float:
    """Return the growth of E[state state'] a step, by the mean of the map over rings."""
    apart = np.eye(num) - 1 / num
    rings = [mixing_matrix(random_ring(num, step, 1)) for step in range(400)]
    maps = [
        np.block([[T - x * np.eye(num), -momentum * np.eye(num)], [x * np.eye(num), momentum * np.eye(num)]])
        for T in rings
    ]
    moments = np.kron(np.eye(2), apart)
    for _ in range(60):
        before = np.trace(moments)
        moments = np.mean([M @ moments @ M.T for M in maps], axis=0)
    return float(np.trace(moments) / before)
