"""The warning of overfitting, on made-up losses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_files import write_lines, write_training

from asrtool.report.figures.training_figures import describe_training, warn_of_overfitting
from asrtool.report.training import read_training


def write(train: Path, train_losses: list[float], dev_losses: list[float]) -> None:
    """Two learners, 10 steps of 2 utterances from one evaluation to the next."""
    write_training(train, num_learners=2, num_steps=10 * len(dev_losses))
    for path in (train / "learners").iterdir():
        steps = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        write_lines(path, [step | {"loss": train_losses[(step["step"] - 1) // 10]} for step in steps])
    lines = [{"kind": "train", "samples": 20 * len(dev_losses), "step": 1, "loss": 1.0, "seconds": 9.0}]
    lines += [
        {"kind": "dev", "samples": 20 * number, "step": 10 * number, "epoch": number, "loss": loss}
        for number, loss in enumerate(dev_losses, 1)
    ]
    write_lines(train / "metrics.jsonl", lines)


def test_dev_that_rises_while_training_falls_is_reported_with_the_losses(tmp_path: Path) -> None:
    write(tmp_path, [4.0, 2.0, 1.0, 0.5, 0.25], [3.0, 1.5, 1.25, 1.375, 1.75])
    text = warn_of_overfitting(read_training(tmp_path))
    assert "lowest, 1.250, after 60 utterances and is 1.750 at the end" in text
    assert "training fell from 1.000 to 0.250" in text
    assert text in describe_training(read_training(tmp_path), "")


def test_a_loss_that_is_no_number_is_not_the_lowest(tmp_path: Path) -> None:
    write(tmp_path, [4.0, 2.0, 1.0, 0.5, 0.25], [3.0, float("nan"), 1.25, 1.375, 1.75])
    text = describe_training(read_training(tmp_path), "")
    assert "lowest, 1.250, after 60 utterances" in text
    assert "The loss on dev was lowest after epoch 3 of 5: 1.250." in text


@pytest.mark.parametrize(
    ("train_losses", "dev_losses"),
    [
        ([4.0, 3.0, 2.0, 1.0], [3.0, 2.0, 1.5, 1.6]),  # one evaluation may be chance
        ([4.0, 3.0, 2.0, 1.0], [3.0, 2.0, 1.5, 1.4]),
        ([4.0, 2.0, 2.5, 3.0], [3.0, 1.5, 1.8, 2.5]),  # training fails altogether
        ([4.0], [3.0]),
        ([4.0], []),
    ],
)
def test_there_is_no_warning_without_it(tmp_path: Path, train_losses: list[float], dev_losses: list[float]) -> None:
    write(tmp_path, train_losses, dev_losses or [3.0])
    if not dev_losses:
        write_lines(tmp_path / "metrics.jsonl", [])
    assert not warn_of_overfitting(read_training(tmp_path))
    assert "Overfitting" not in describe_training(read_training(tmp_path), "")
