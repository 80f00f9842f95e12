"""Buffers of a model that learners in processes of their own train: batch-norm statistics, by every strategy.

tests/unit/distributed/test_hogwild.py has the strategy with shared memory.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import equations
import numpy as np
import pytest
from learners import Learners

pytestmark = pytest.mark.slow

NUM_STEPS = 8
every_strategy = pytest.mark.parametrize("name", equations.STATISTICS)


@every_strategy
def test_statistics_follow_the_equations_of_the_strategy_and_their_mean_stands_for_all(name: str) -> None:
    num_learners = equations.num_learners_of(name)
    with contextlib.closing(Learners(num_learners)) as learners:
        found = learners.run(equations.train_normalised, name, NUM_STEPS)
    expected = equations.statistics_by_equations(name, num_learners, NUM_STEPS)
    np.testing.assert_allclose(np.stack([own for own, _, _ in found], axis=1), expected, atol=1e-6)
    for _, of_all, num_batches in found:
        np.testing.assert_allclose(of_all, expected[-1].mean(axis=0), atol=1e-6)
        assert num_batches == NUM_STEPS + 1  # that of the learner with the most


@every_strategy
def test_after_resuming_weights_and_statistics_are_bit_for_bit_as_without(
    learners: Learners, tmp_path: Path, name: str
) -> None:
    num_learners = 4 if name.startswith("h-adpsgd") else 2
    undisturbed = learners.run(equations.train_and_resume, name, tmp_path / "one", False, num=num_learners)
    resumed = learners.run(equations.train_and_resume, name, tmp_path / "two", True, num=num_learners)
    expected = equations.statistics_by_equations(name, num_learners, 4)[-1]
    num_values = None if name != "ps-async" else 2 * equations.NUM_INPUTS + 1  # weights depend on who is first
    for (values, saved), (wanted, _) in zip(resumed, undisturbed, strict=True):
        np.testing.assert_array_equal(values[::-1][:num_values], wanted[::-1][:num_values])
        np.testing.assert_allclose(saved, expected.mean(axis=0), atol=1e-6)
        assert np.abs(saved - expected[0]).max() > 0.01
