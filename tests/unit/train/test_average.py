"""Averages against NumPy."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_task import NUM_BINS, NUM_TOKENS
from trainings import summary

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import load_model
from asrtool.train.average import _mean, average_checkpoints
from asrtool.train.checkpoints.checkpoint import State, checkpoint_path, save_checkpoint


@pytest.fixture
def trained(train_toy, tmp_path: Path) -> Path:
    train_toy(tmp_path / "train")
    return tmp_path / "train"


def numpy_mean(trained: Path, steps: list[int]) -> dict[str, np.ndarray]:
    paths = [trained / "checkpoints" / f"step-{step:08d}.pt" for step in steps]
    weights = [torch.load(path, weights_only=True)["weights"] for path in paths]
    return {name: np.mean([each[name].double().numpy() for each in weights], axis=0) for name in weights[0]}


def saved(trained: Path) -> list[dict[str, float]]:
    entries: list[dict[str, float]] = summary(trained)["checkpoints"]
    return entries


def assert_model_is(path: Path, expected: dict[str, np.ndarray]) -> None:
    model, info = load_model(path)
    assert info["features"]["cmvn"] == "none"
    assert info["features"]["sampling_rate_hz"] == 8000
    assert (info["num_features"], info["num_tokens"]) == (NUM_BINS, NUM_TOKENS)
    for name, weight in model.state_dict().items():
        np.testing.assert_allclose(weight.numpy(), expected[name], rtol=1e-6, atol=1e-9)


def test_the_last_checkpoints_are_averaged(trained: Path, tmp_path: Path) -> None:
    average_checkpoints(trained, tmp_path / "model.pt", "last", 3)
    steps = [int(entry["step"]) for entry in saved(trained)][-3:]
    assert_model_is(tmp_path / "model.pt", numpy_mean(trained, steps))


def test_those_with_the_lowest_loss_on_dev_are_averaged(trained: Path, tmp_path: Path) -> None:
    average_checkpoints(trained, tmp_path / "model.pt", "best", 2)
    evaluated = [entry for entry in saved(trained) if entry["dev_loss"] is not None]
    best = sorted(evaluated, key=lambda entry: entry["dev_loss"])[:2]
    assert_model_is(tmp_path / "model.pt", numpy_mean(trained, [int(entry["step"]) for entry in best]))


def test_fewer_checkpoints_than_wanted_are_averaged_and_reported(trained: Path, tmp_path: Path, caplog) -> None:
    with caplog.at_level(logging.INFO):
        average_checkpoints(trained, tmp_path / "model.pt", "last", 9)
    steps = [int(entry["step"]) for entry in saved(trained)]
    assert_model_is(tmp_path / "model.pt", numpy_mean(trained, steps))
    assert f"averaging the {len(steps)} that are there, of 9 checkpoints wanted" in caplog.text


def test_a_damaged_checkpoint_among_those_wanted_is_named(trained: Path, tmp_path: Path) -> None:
    step = int(saved(trained)[-2]["step"])
    (trained / "checkpoints" / f"step-{step:08d}.pt").write_bytes(b"damaged")
    with pytest.raises(AsrtoolError, match=f"step-{step:08d}.pt: no checkpoint, or a damaged one"):
        average_checkpoints(trained, tmp_path / "model.pt", "last", 3)
    assert not (tmp_path / "model.pt").exists()


def test_statistics_are_averaged_and_counters_are_those_of_the_newest(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        weights = {"mean": torch.tensor([10.0 ** (7 * (step - 2))]), "count": torch.tensor(2**60 + step)}
        save_checkpoint(tmp_path, {}, weights, {}, State(step=step))
    _, mean = _mean([checkpoint_path(tmp_path, step) for step in (2, 3, 1)])
    assert mean["count"].dtype == torch.int64
    assert mean["count"] == 2**60 + 3
    assert mean["mean"].dtype == torch.float32
    assert mean["mean"].item() == np.float32((1e-7 + 1 + 1e7) / 3)


def test_without_checkpoints_the_stage_to_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match="no checkpoint; run the train stage first"):
        average_checkpoints(tmp_path, tmp_path / "model.pt", "last", 3)
