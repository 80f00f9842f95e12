"""Every strategy in processes of learners: weights and statistics by its equations, copies and messages of a step.

There is no GPU: memory of the host is taken for one, and copies are counted (tests/fake_gpu.py).
tests/unit/distributed/test_baselines.py has the strategy with shared memory.
"""

from __future__ import annotations

import equations
import numpy as np
import pytest
from learners import Learners

pytestmark = pytest.mark.slow

NUM_PROCESSES = 10  # of learners
BF16 = ["adpsgd-d1 in bf16", "bmuf in bf16", "h-adpsgd by adpsgd-d1 in bf16"]  # whose messages are of all weights


@pytest.mark.parametrize("name", dict.fromkeys([*equations.RULES, *equations.STATISTICS]))
def test_a_strategy_in_lock_step_is_its_equation(learners: Learners, name: str) -> None:
    """This holds for weights and statistics, whose mean stands for all."""
    num_learners = equations.num_learners_of(name)
    found = learners.run(equations.train, name, 8, num=num_learners)
    if name in equations.RULES:
        expected = equations.by_equations(name, num_learners, 8)
        np.testing.assert_allclose(np.stack([one.weights for one in found], axis=1), expected, atol=1e-6)
    if name in equations.STATISTICS:
        expected = equations.statistics_by_equations(name, num_learners, 8)
        np.testing.assert_allclose(np.stack([one.statistics for one in found], axis=1), expected, atol=1e-6)
        for one in found:
            np.testing.assert_allclose(one.of_all, expected[-1].mean(axis=0), atol=1e-6)
            assert one.num_batches == 8 + 1  # that of the learner with the most


@pytest.mark.parametrize("name", [*equations.STATISTICS, *BF16])
def test_after_resuming_weights_and_statistics_are_bit_for_bit_as_without(learners, tmp_path, name: str) -> None:
    num_learners = 4 if name.startswith("h-adpsgd") else 2
    undisturbed = learners.run(equations.train_and_resume, name, tmp_path / "one", False, num=num_learners)
    resumed = learners.run(equations.train_and_resume, name, tmp_path / "two", True, num=num_learners)
    num_values = None if name != "ps-async" else 2 * equations.NUM_INPUTS + 1  # weights depend on who is first
    for (values, saved), (wanted, _) in zip(resumed, undisturbed, strict=True):
        np.testing.assert_array_equal(values[::-1][:num_values], wanted[::-1][:num_values])
        if name in equations.STATISTICS:
            expected = equations.statistics_by_equations(name, num_learners, 4)[-1]
            np.testing.assert_allclose(saved, expected.mean(axis=0), atol=1e-6)
            assert np.abs(saved - expected[0]).max() > 0.01


NUM_LEARNERS, NUM_STEPS = 4, 6
GRADIENT = 4 * equations.NUM_INPUTS * equations.NUM_OUTPUTS  # bytes
BUFFERS = 4 * 2 * 16  # running means and variances, each filled up to 64 bytes
ALL = 4 * 32 + BUFFERS  # of the flat weights

# Copied to the host, to the GPU; sent by collectives: gossip is a message of neighbours, in test_gossip.py
EXPECTED = {
    "allreduce": [(0, 0, GRADIENT * 6 // 4)] * NUM_STEPS,
    "adpsgd-fixed": [(ALL, ALL, 0)] * NUM_STEPS,
    "adpsgd-random": [(ALL, ALL, 0)] * NUM_STEPS,
    "adpsgd-d1": [(0, 0, ALL * 6 // 4)] * NUM_STEPS,
    "bmuf": [(0, 0, 0), (0, 0, 0), (0, 0, ALL * 6 // 4)] * (NUM_STEPS // 3),
    # within a pair: gradients and buffers are averaged, half of the weights is sent
    "h-adpsgd": [(ALL // 2, ALL // 2, GRADIENT + BUFFERS + ALL // 2)] * NUM_STEPS,
    "allreduce in bf16": [(0, 0, GRADIENT // 2 * 6 // 4)] * NUM_STEPS,
    "adpsgd-d1 in bf16": [(0, 0, ALL // 2 * 6 // 4)] * NUM_STEPS,
    "bmuf in bf16": [(0, 0, 0), (0, 0, 0), (0, 0, ALL // 2 * 6 // 4)] * (NUM_STEPS // 3),
    "h-adpsgd in bf16": [(ALL // 2, ALL // 2, GRADIENT // 2 + BUFFERS + ALL // 2)] * NUM_STEPS,
    "h-adpsgd by adpsgd-d1 in bf16": [(0, 0, GRADIENT // 2 + BUFFERS + ALL // 2 + ALL // 4)] * NUM_STEPS,
    # the mean of that half over the two pairs as well
    "h-adpsgd by adpsgd-d1": [(0, 0, GRADIENT + BUFFERS + ALL // 2 + ALL // 2)] * NUM_STEPS,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_on_a_gpu_a_strategy_ends_in_the_bits_of_the_host_and_copies_no_more_than_it_has_to(
    learners, name: str
) -> None:
    on_host, on_gpu = (
        learners.run(equations.train, name, NUM_STEPS, equations.RATE, gpu, num=NUM_LEARNERS) for gpu in (False, True)
    )
    for here, there in zip(on_host, on_gpu, strict=True):
        np.testing.assert_array_equal(there.weights, here.weights)
        np.testing.assert_array_equal(there.statistics, here.statistics)
        assert there.counted == EXPECTED[name]
        assert here.counted == [(0, 0, sent) for _, _, sent in EXPECTED[name]]
    if name.endswith(" in bf16") and name != "h-adpsgd in bf16":
        assert_rounded(name, np.stack([one.weights for one in on_host], axis=1))


def assert_rounded(name: str, found: np.ndarray) -> None:
    """Rounding changes each learner's term of an update, and each partial sum, by at most 2^-8 of it."""
    exact = equations.by_equations(name, NUM_LEARNERS, NUM_STEPS)
    changes = np.abs(exact - equations.start_weights()).max()
    assert 1e-5 < np.abs(found - exact).max() < NUM_STEPS * NUM_LEARNERS * 2**-8 * changes


@pytest.mark.parametrize("name", BF16)
def test_what_no_learner_changes_keeps_its_bits_with_messages_of_bf16(learners: Learners, name: str) -> None:
    for one in learners.run(equations.train, name, NUM_STEPS, 0.0, num=NUM_LEARNERS):
        np.testing.assert_array_equal(one.weights, np.stack([equations.start_weights().astype(np.float32)] * NUM_STEPS))
