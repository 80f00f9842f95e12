"""Weights in shared memory: learners in several processes see each other's steps, and they learn."""

from __future__ import annotations

import fcntl
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from learner_threads import (
    NUM_LEARNERS,
    Net,
    NormalisedNet,
    give_gradients,
    run_schedule,
    started,
    synchronise,
    weights_of,
)
from torch import nn

from asrtool.distributed.weights.flat import FlatWeights

TURNS = (0, 1, 1, 2, 0, 2, 2, 2, 1, 0)  # which learner steps next
RATE = 2**-6
SGD: dict[str, Any] = {"optimizer": "sgd", "weight_decay": 0.0, "momentum": 0.0, "peak_lr": RATE}


@pytest.mark.parametrize("seed", range(3))
def test_what_is_recorded_at_a_cut_has_all_steps_from_before_it_and_none_from_behind(seed: int) -> None:
    """All numbers are multiples of a power of two, so that nothing is rounded."""
    models = [Net() for _ in range(NUM_LEARNERS)]
    for model in models:
        for parameter in model.parameters():
            parameter.data.mul_(9).round_()
    learners = started("hogwild", models, **SGD)
    expected, taken = run_schedule(seed, learners, models, momentum=0.0, optimizer_of=lambda rank: rank)
    for reference, (first, *others) in zip(expected, taken, strict=False):
        assert all(snapshot.settled() for snapshot in (first, *others))
        assert [snapshot.values_P for snapshot in others] == [None] * (NUM_LEARNERS - 1)
        recorded = Net()
        FlatWeights(recorded).weights_P.copy_(first.values_P)
        np.testing.assert_array_equal(weights_of(recorded), reference.weights)
    np.testing.assert_array_equal(weights_of(models[0]), expected[-1].weights)


def test_the_optimizer_of_a_learner_steps_once_where_its_step_is_recorded_as_well() -> None:
    """With momentum, its velocity after steps before an open cut is that of as many steps."""
    models = [Net(), Net()]
    learners = started("hogwild", models, **{**SGD, "momentum": 0.5})
    alone = Net()
    (single,) = started("single", [alone], **{**SGD, "momentum": 0.5})
    learners[0].snapshot(1)
    for _ in range(3):
        give_gradients(models[1], np.random.default_rng(0))
        learners[1].step()
        give_gradients(alone, np.random.default_rng(0))
        single.step()
    np.testing.assert_allclose(weights_of(models[0]), weights_of(alone), atol=1e-6)
    assert models[1].output.weight.data_ptr() == learners[1].flat.views[4].data_ptr()  # shared as before


def test_nothing_is_recorded_while_a_learner_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [Net(), Net()]
    learners = started("hogwild", models, **SGD)
    step = learners[0].optimizer.step
    held = []

    def step_and_look() -> None:
        file = learners[1].shared.lock  # type: ignore[attr-defined]
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # another step is possible
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(True)
        step()

    monkeypatch.setattr(learners[0].optimizer, "step", step_and_look)
    give_gradients(models[0], np.random.default_rng(0))
    learners[0].step()
    assert held == [True]


def test_statistics_are_those_of_all_batches_in_the_order_they_come() -> None:
    models = [NormalisedNet(seed) for seed in range(3)]
    learners = started("hogwild", models, **SGD)
    random = torch.Generator().manual_seed(0)
    expected = nn.BatchNorm1d(5)
    largest = 0.0
    for learner in TURNS:
        inputs_TNF = torch.randn(4, 2, 5, generator=random)
        largest = max(largest, float(inputs_TNF.max()))
        expected(inputs_TNF.flatten(0, 1))
        learners[learner].task(inputs_TNF).backward()
        learners[learner].step()
    synchronise(learners)
    for model in models:
        assert float(model.largest) == largest
        torch.testing.assert_close(model.norm.running_mean, expected.running_mean)
        torch.testing.assert_close(model.norm.running_var, expected.running_var)
        assert model.norm.num_batches_tracked == max(Counter(TURNS).values())
