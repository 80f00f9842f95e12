"""Expected mixing matrices against all that can be drawn, one by one."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from systems import ALL, system_of

from asrtool.distributed.strategies.topology import mixing_matrix, passive_partner, random_ring, right_neighbour
from asrtool.predict.theory.system import (
    System,
    mixing_in_rounds,
    mixing_one_by_one,
    moments_of_step,
    rate_of_any_ring,
    rate_of_step,
)


@pytest.mark.parametrize("num", [2, 3, 5])
def test_the_random_ring_has_the_mean_of_all_orders(num: int) -> None:
    matrices = [mixing_matrix(order) for order in itertools.permutations(range(num))]
    mixing = mixing_in_rounds(system_of("adpsgd-random", num))
    assert mixing
    np.testing.assert_allclose(mixing.matrix_NN, np.mean(matrices, axis=0), atol=1e-12)
    squares = np.mean([matrix @ matrix.T for matrix in matrices], axis=0)
    assert mixing.rate == pytest.approx(np.linalg.eigvalsh(squares)[-2], abs=1e-12)


@pytest.mark.parametrize("num", [4, 8, 64])
def test_rings_have_their_closed_forms(num: int) -> None:
    fixed, random = (mixing_in_rounds(system_of(name, num)) for name in ("adpsgd-fixed", "adpsgd-random"))
    assert fixed
    assert random
    assert fixed.second_eigenvalue == pytest.approx((1 + 2 * math.cos(2 * math.pi / num)) / 3)
    assert fixed.rate == pytest.approx(fixed.second_eigenvalue**2)
    assert random.rate == pytest.approx((num - 3) / (3 * (num - 1)))


def exchanges(system: System) -> list[tuple[float, np.ndarray]]:
    """Every step that can be made: its probability and its T."""
    found, speeds_N, b = [], system.speeds_N, system.weight
    for i, j in itertools.product(range(system.num_replicas), repeat=2):
        chance = system.partners_NN[i, j]
        if i != j and chance:
            edge = np.zeros(system.num_replicas)
            edge[i], edge[j] = 1, -1
            found.append((speeds_N[i] / speeds_N.sum() * chance, np.eye(len(edge)) - b * np.outer(edge, edge)))
    rest = 1 - sum(chance for chance, _ in found)
    return [*found, (rest, np.eye(system.num_replicas))]


@pytest.mark.parametrize("name", ["adpsgd-fixed", "adpsgd-random", "adpsgd-pairs"])
@pytest.mark.parametrize("slow", [{}, {0: 10.0}, {1: 4.0, 3: 2.0}])
def test_a_step_at_its_own_time_has_the_mean_of_all_exchanges(name: str, slow: dict[int, float]) -> None:
    system = system_of(name, 5, slow)
    mean_NN, square_NN = moments_of_step(system)
    np.testing.assert_allclose(mean_NN, sum(p * T for p, T in exchanges(system)), atol=1e-12)
    np.testing.assert_allclose(square_NN, sum(p * T @ T.T for p, T in exchanges(system)), atol=1e-12)
    mixing = mixing_one_by_one(system)
    assert mixing
    assert mixing.rate == pytest.approx(rate_of_step(system) ** system.speeds_N.sum())


@pytest.mark.parametrize("num", [4, 7])
def test_partners_are_as_often_the_ones_that_training_draws(num: int) -> None:
    steps = 4000
    rings = Counter(right_neighbour(random_ring(num, step, 3), 1) for step in range(steps))
    pairs = Counter(passive_partner(num, step, 3, 2) for step in range(steps))
    for counts, expected_N in (
        (rings, system_of("adpsgd-random", num).partners_NN[1]),
        (pairs, system_of("adpsgd-pairs", num).partners_NN[2]),
    ):
        drawn_N = np.array([counts[j] for j in range(num)]) / steps
        np.testing.assert_allclose(drawn_N, expected_N, atol=4 * math.sqrt(0.25 / steps))


@pytest.mark.parametrize(("name", "settings"), ALL)
def test_matrices_are_doubly_stochastic_and_rates_are_fractions(name: str, settings: dict[str, object]) -> None:
    for num in (2, 6):
        system = system_of(name, num, {1: 3.0}, **settings)
        for mixing in (mixing_in_rounds(system), mixing_one_by_one(system)):
            if mixing:
                np.testing.assert_allclose(mixing.matrix_NN.sum(axis=0), 1)
                np.testing.assert_allclose(mixing.matrix_NN.sum(axis=1), 1)
                assert mixing.matrix_NN.min() > -1e-12
                assert 0 <= mixing.rate < 1


def test_the_slowest_disagreement_is_a_tenth_after_the_steps_said() -> None:
    mixing = mixing_in_rounds(system_of("adpsgd-fixed", 12))
    assert mixing
    slowest = np.linalg.eigh(mixing.matrix_NN)[1][:, -2]
    left = [np.linalg.norm(np.linalg.matrix_power(mixing.matrix_NN, k) @ slowest) for k in range(60)]
    assert left[math.floor(mixing.steps_to_tenth)] > 0.1 > left[math.ceil(mixing.steps_to_tenth)]


@pytest.mark.parametrize("name", ["adpsgd-fixed", "adpsgd-random"])
def test_a_mean_of_all_leaves_nothing_and_super_learners_mix_as_so_many_learners(name: str) -> None:
    mean = mixing_in_rounds(system_of("adpsgd-d1", 6))
    nodes = mixing_in_rounds(system_of("h-adpsgd", 12, node_size=2, outer=name))
    learners = mixing_in_rounds(system_of(name, 6))
    assert mean
    assert nodes
    assert learners
    np.testing.assert_allclose(mean.matrix_NN, np.full((6, 6), 1 / 6))
    assert mean.rate == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(nodes.matrix_NN, learners.matrix_NN, atol=1e-12)
    assert nodes.rate == pytest.approx(learners.rate)


def test_no_order_of_a_ring_mixes_slower_than_another() -> None:
    for step in range(5):
        matrix = mixing_matrix(random_ring(9, step, 1))
        assert np.linalg.eigvalsh(matrix @ matrix.T)[-2] == pytest.approx(rate_of_any_ring(9))
