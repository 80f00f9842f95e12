"""Moments of a training on a quadratic against closed forms, and steps against the equations of strategies."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from systems import ALL, system_of

from asrtool.distributed.strategies.topology import fixed_ring, mixing_matrix
from asrtool.predict.theory.bounds import Constants
from asrtool.predict.theory.quadratic import Trajectory, draw, predict, steps_of
from asrtool.predict.theory.system import SHARED

NUM, BETA, SIGMA2, RATE = 8, 1.7, 0.6, 0.11
X = RATE * BETA
CONSTANTS = Constants(smoothness=BETA, noise=SIGMA2, start=2.0)


def course_of(name: str, num_steps: int = 400, num: int = NUM, **settings: object) -> Trajectory:
    return predict(system_of(name, num, **settings), CONSTANTS, RATE, num_steps, in_rounds=True)


def of_mean(step: int, num: int = NUM) -> float:
    """E |grad f(mean w)|^2 after so many steps, without delay."""
    left = (1 - X) ** (2 * step)
    return BETA**2 * (2 * CONSTANTS.start / BETA * left + RATE**2 * SIGMA2 / num * (1 - left) / (1 - (1 - X) ** 2))


@pytest.mark.parametrize("name", ["allreduce", "ps-sync", "adpsgd-fixed", "adpsgd-random", "adpsgd-d1"])
def test_the_mean_does_not_depend_on_who_mixes_with_whom(name: str) -> None:
    expected_K = [of_mean(step) for step in range(400)]
    np.testing.assert_allclose(course_of(name).gradient_K, expected_K, rtol=1e-9)


@pytest.mark.parametrize("name", ["adpsgd-fixed", "adpsgd-d1"])
def test_consensus_of_rounds_has_its_closed_form(name: str) -> None:
    eigenvalues = [(1 + 2 * math.cos(2 * math.pi * i / NUM)) / 3 for i in range(1, NUM)]
    modes = [(one * (name == "adpsgd-fixed") - X) ** 2 for one in eigenvalues]
    expected = RATE**2 * SIGMA2 / NUM * sum(1 / (1 - mode) for mode in modes)
    assert course_of(name).distance_K[-1] == pytest.approx(expected, rel=1e-9)


def test_consensus_on_a_flat_loss_right_after_mixing_has_its_closed_form() -> None:
    """(W - rate G) T: what is mixed is what an update has left."""
    flat = Constants(smoothness=1e-9, noise=SIGMA2, start=1e-12)
    matrix = mixing_matrix(fixed_ring(NUM, 0, 1))
    after_update = predict(system_of("adpsgd-fixed", NUM), flat, RATE, 2000, in_rounds=True).distance_K[-1]
    squares = [((1 + 2 * math.cos(2 * math.pi * i / NUM)) / 3) ** 2 for i in range(1, NUM)]
    covariance = np.zeros((NUM, NUM))
    for _ in range(2000):
        covariance = matrix.T @ (covariance + RATE**2 * SIGMA2 * np.eye(NUM)) @ matrix
    mixed = np.trace(covariance) / NUM - covariance.mean()
    assert mixed == pytest.approx(RATE**2 * SIGMA2 / NUM * sum(one / (1 - one) for one in squares), rel=1e-9)
    assert after_update == pytest.approx(mixed + RATE**2 * SIGMA2 * (1 - 1 / NUM), rel=1e-6)


def test_consensus_on_a_random_ring_has_its_closed_form_in_expectation() -> None:
    one = (NUM - 3) / (3 * (NUM - 1))  # of E[T] and of E[T T'], both
    expected = RATE**2 * SIGMA2 * (1 - 1 / NUM) / (1 - (one - 2 * X * one + X**2))
    drawn = course_of("adpsgd-random", 8000).distance_K[50:]
    blocks = drawn[: len(drawn) // 50 * 50].reshape(50, -1).mean(axis=1)
    assert abs(blocks.mean() - expected) < 3 * blocks.std(ddof=1) / math.sqrt(50)
    assert blocks.mean() == pytest.approx(expected, rel=0.01)


def test_consensus_within_a_block_grows_by_its_closed_form() -> None:
    distances = course_of("bmuf", 21, block_momentum=0.0, block_steps=5).distance_K
    for step in range(1, 21):
        since = step % 5
        expected = RATE**2 * SIGMA2 * (1 - 1 / NUM) * sum((1 - X) ** (2 * s) for s in range(since))
        assert distances[step] == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_shared_weights_of_two_learners_have_the_variance_of_an_autoregression() -> None:
    """w_{k+1} = w_k - x w_{k-1} - rate xi (Yule and Walker)."""
    expected = BETA**2 * RATE**2 * SIGMA2 * (1 + X) / ((1 - X) * ((1 + X) ** 2 - 1))
    assert course_of("ps-async", 600, num=2).gradient_K[-1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_consensus_one_by_one_has_its_closed_form_on_a_flat_loss() -> None:
    flat = Constants(smoothness=1e-9, noise=SIGMA2, start=1e-12)
    course = predict(system_of("adpsgd-random", NUM), flat, RATE, 25_000, in_rounds=False)
    a = 2 / 3 * (1 - 1 / 3)  # 2 b (1 - b)
    expected = RATE**2 * SIGMA2 * (1 - 1 / NUM - a) * (NUM - 1) / (2 * a) / NUM
    blocks = course.distance_K[2000:].reshape(46, -1).mean(axis=1)
    assert abs(blocks.mean() - expected) < 3 * blocks.std(ddof=1) / math.sqrt(46)
    assert blocks.mean() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("name", "settings"), ALL)
def test_what_is_drawn_is_about_what_is_predicted(name: str, settings: dict[str, object]) -> None:
    for in_rounds in (True, False):
        system = system_of(name, 6, **settings)
        if not in_rounds and (not system.asynchronous or name in SHARED):
            continue
        if in_rounds and name == "adpsgd-pairs":
            continue
        asked = (system, CONSTANTS, RATE / 4, 1500, in_rounds)
        predicted, drawn = predict(*asked), draw(*asked)
        np.testing.assert_allclose(drawn.mean_gradient_K(), predicted.mean_gradient_K(), rtol=0.1)
        assert drawn.distance_K.mean() == pytest.approx(predicted.distance_K.mean(), rel=0.1, abs=1e-20)


@pytest.mark.parametrize(("steps", "eta", "zeta", "nesterov"), [(4, 0.5, 1.0, False), (2, 0.4, 0.8, True)])
def test_a_block_begins_where_the_momentum_takes_it(steps: int, eta: float, zeta: float, nesterov: bool) -> None:
    """The expectation is the mean minus the block's begin, with momentum; Nesterov's is ahead of the weights."""
    system = system_of("bmuf", 3, block_steps=steps, block_momentum=eta, block_rate=zeta, nesterov=nesterov)
    w, weights, momentum, ahead = np.ones(3), 1.0, 0.0, eta * nesterov
    state_S = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    for number, step in enumerate(itertools.islice(steps_of(system, BETA, RATE, True), 4 * steps), 1):
        begun_at = weights + ahead * momentum
        w = (1 - X) * w
        if number % steps == 0:
            momentum = eta * momentum + zeta * (w.mean() - begun_at)
            weights += momentum
            w[:] = weights + ahead * momentum
        state_S[step.rows] = step.change @ state_S
        np.testing.assert_allclose(state_S[:3], w, atol=1e-12)
