"""Weight noise against a model whose weights were changed by hand."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from asrtool.models.precision import choose_precision
from asrtool.settings.toml_files import load_config
from asrtool.train.batches.batch import TrainingBatch, seed_torch
from asrtool.train.loop.loss import Task
from asrtool.train.train import build_components

NOISE = 0.1


@pytest.fixture
def task_and_batch(toy: Path, toy_config: Path) -> tuple[Task, TrainingBatch]:
    torch.manual_seed(1)
    overrides = ["model.lstm.dropout=0", 'train.frozen=["encoder.layers.0.*"]']
    components = build_components(toy / "features", toy / "tokenizer", load_config([toy_config], overrides))
    planned = next(iter(components.train_set.plan(0, 0, {})))
    return Task(components.model, choose_precision("fp32"), NOISE), components.train_set.read(planned)


def test_loss_and_gradients_are_those_of_the_noisy_weights_and_frozen_ones_have_no_noise(
    task_and_batch: tuple[Task, TrainingBatch],
) -> None:
    task, batch = task_and_batch
    before = {name: weight.clone() for name, weight in task.named_parameters()}
    seed_torch(5)
    loss = task(batch)
    loss.backward()
    other = Task(copy.deepcopy(task.model), task.precision)
    other.zero_grad()
    seed_torch(5)
    noises = []
    for weight in other.parameters():
        if weight.requires_grad:
            noises.append(torch.randn_like(weight))
            weight.data += NOISE * noises[-1]
    expected = other(batch)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    assert len(noises) < len(before)
    assert torch.cat([noise.flatten() for noise in noises]).std() == pytest.approx(1, abs=0.05)
    for (name, weight), (_, same) in zip(task.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(weight, before[name]), name
        assert (weight.grad is None) == (same.grad is None)
        if weight.grad is not None:
            torch.testing.assert_close(weight.grad, same.grad)


def test_it_is_another_one_each_time_and_the_same_for_a_seed(task_and_batch: tuple[Task, TrainingBatch]) -> None:
    task, batch = task_and_batch
    losses = []
    for seed in (5, 6, 5):
        seed_torch(seed)
        losses.append(float(task(batch).detach()))
    assert losses[0] == losses[2] != losses[1]
