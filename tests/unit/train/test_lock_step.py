"""The learners of benchmarks/lock_step.py by the equations that strategies are tested with."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import equations
import numpy as np
import pytest
import torch
from equations import MOMENTUM, NUM_INPUTS, NUM_OUTPUTS, RATE, SEED

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
import lock_step

NUM_LEARNERS, NUM_STEPS = 5, 8


@pytest.mark.parametrize("name", [name for name in lock_step.STRATEGIES if name != "single"])
def test_learners_in_one_process_compute_the_equations_of_the_strategy(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equations, "DECAY", 0.0)
    monkeypatch.setattr(equations, "BLOCK", lock_step.BLOCK)
    start_P = torch.from_numpy(equations.start_weights()).flatten()
    learners = lock_step.LockStep(name, start_P, NUM_LEARNERS, MOMENTUM, SEED)
    found = []
    for step in range(NUM_STEPS):
        learners.step(functools.partial(gradient, step, len(learners.weights_LP)), RATE)
        found.append(learners.weights_LP.expand(NUM_LEARNERS, -1).numpy().copy())
    expected = equations.by_equations(name, NUM_LEARNERS, NUM_STEPS)
    np.testing.assert_allclose(np.stack(found).reshape(expected.shape), expected, atol=1e-12)


def gradient(step: int, rows: int, weights_P: torch.Tensor, row: int) -> torch.Tensor:
    """Of all learners where they share one row."""
    weights = weights_P.numpy().reshape(NUM_OUTPUTS, NUM_INPUTS)
    learners = range(NUM_LEARNERS) if rows == 1 else [row]
    return torch.from_numpy(np.mean([equations.gradient(weights, i, step) for i in learners], axis=0).flatten())


def test_a_learner_without_a_batch_mixes_and_keeps_its_momentum() -> None:
    learners = lock_step.LockStep("adpsgd-d1", torch.zeros(1), 2, MOMENTUM, SEED)
    learners.step(lambda _, row: torch.ones(1), 1.0)
    learners.step(lambda _, row: torch.ones(1) if row else None, 1.0)
    assert learners.weights_LP.flatten().tolist() == pytest.approx([-1.0, -1.0 - (1 + MOMENTUM)])
    assert learners.momenta_LP.flatten().tolist() == pytest.approx([1.0, 1 + MOMENTUM])
