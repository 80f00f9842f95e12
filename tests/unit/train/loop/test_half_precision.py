"""Training in half precision: overflows, resumption, and learners that step together."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from toy_task import assert_same_bits, last_weights
from trainings import interrupted_at, json_lines, metrics, run_training

from asrtool.distributed.strategies import update
from asrtool.distributed.strategies.update import LossScale
from asrtool.errors import AsrtoolError
from asrtool.report.figures.training_figures import describe_training
from asrtool.report.training import read_training
from asrtool.train.loop.loss import LossModule

pytestmark = pytest.mark.slow

NUM_PROCESSES = 2  # of learners
Apply = Callable[[LossScale, torch.Tensor], torch.Tensor]
FP16 = "train.precision=fp16"
NUM_BATCHES = 8  # of an epoch of the toy task
FIRST = 2.0**10  # so small that there are no other overflows than those of a test
SAME = ("allreduce", "ps-sync")  # where learners step together


@pytest.fixture(autouse=True)
def small_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "FIRST_SCALE", FIRST)


def overflowing(*numbers: int) -> Apply:
    """`LossScale.apply`, with an overflow in these steps of a learner, counted from 1."""
    count = 0

    def apply(self: LossScale, loss: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return loss * (math.inf if count in numbers else self.value)

    return apply


def test_a_step_that_overflows_is_skipped_has_no_loss_in_its_record_and_is_left_out_of_means(
    train_toy, tmp_path, monkeypatch
) -> None:
    forward, count = LossModule.forward, 0

    def overflow(self: LossModule, batch: object) -> torch.Tensor:
        nonlocal count
        count += 1
        loss = forward(self, batch)  # type: ignore[arg-type]
        return loss * math.inf if count == 3 else loss

    monkeypatch.setattr(LossModule, "forward", overflow)
    out = tmp_path / "train"
    weights = train_toy(out, FP16, "train.num_epochs=1", "train.log_every_steps=4")
    assert all(weight.isfinite().all() for weight in weights.values())
    steps, lines = json_lines(out / "learners/0.jsonl"), metrics(out, "train")
    assert [step["loss"] is None for step in steps] == [number == 2 for number in range(NUM_BATCHES)]
    assert all(math.isfinite(line["loss"]) and math.isfinite(line["grad_norm"]) for line in lines)
    assert [(line["skipped_steps"], line["loss_scale"]) for line in lines] == [(1, FIRST / 2)] * 2
    assert "Learner 0 skipped 1 steps" in describe_training(read_training(out), "")


def test_what_never_becomes_finite_is_no_overflow(train_toy, tmp_path: Path) -> None:
    with (
        patch.object(LossScale, "apply", overflowing(*range(1, 100))),
        pytest.raises(AsrtoolError, match="gradient norm"),
    ):
        train_toy(tmp_path / "train", FP16)
    assert len(json_lines(tmp_path / "train/learners/0.jsonl")) == math.log2(FIRST)


@pytest.mark.parametrize("strategy", SAME)
def test_all_strategies_of_the_same_weights_find_the_same_in_fp16(
    strategy: str, toy, toy_config, tmp_path, learners
) -> None:
    """Plain SGD is used, whose steps a wrong scale would change."""
    plain = ("train.optimizer=sgd", "train.peak_lr=0.002", "train.clip_norm=1000", "model.lstm.dropout=0")
    for precision in ("fp16", "fp32"):
        overrides = [f"train.precision={precision}", f"distributed.strategy={strategy}", "train.num_epochs=1", *plain]
        learners.run(run_training, toy, toy_config, tmp_path / precision, overrides)
    expected = last_weights(tmp_path / "fp32")
    for name, weight in last_weights(tmp_path / "fp16").items():
        torch.testing.assert_close(weight, expected[name], atol=5e-3, rtol=0)


def test_the_scale_is_continued_when_training_is_resumed(train_toy, tmp_path: Path) -> None:
    settings = (FP16, "train.log_every_steps=1")
    with patch.object(LossScale, "apply", overflowing(2)):
        undisturbed = train_toy(tmp_path / "undisturbed", *settings)
    out = tmp_path / "train"
    with interrupted_at(0, 4), patch.object(LossScale, "apply", overflowing(2)):
        train_toy(out, *settings)
    assert_same_bits(train_toy(out, *settings), undisturbed)
    one, other = (
        [(line["step"], line["loss_scale"], line["skipped_steps"]) for line in metrics(folder, "train")]
        for folder in (out, tmp_path / "undisturbed")
    )
    assert one == other


def train_with_overflow(toy: Path, config: Path, out: Path, strategy: str) -> tuple[int, float]:
    """Train with an overflow in the third step of learner 1; return its skipped steps and its scale."""
    numbers = (3,) if os.environ["RANK"] == "1" else ()
    found: list[LossScale] = []
    load, note = overflowing(*numbers), LossScale.note

    def noting(self: LossScale, norm: float) -> None:
        found[:] = [self]
        note(self, norm)

    with (
        patch.object(update, "FIRST_SCALE", FIRST),
        patch.object(LossScale, "apply", load),
        patch.object(LossScale, "note", noting),
    ):
        run_training(toy, config, out, [FP16, f"distributed.strategy={strategy}", "train.batch_s=0.9"])
    return found[0].num_skipped, found[0].value


@pytest.mark.parametrize("strategy", ["allreduce", "h-adpsgd", "adpsgd-random", "ps-async"])
def test_learners_that_step_together_skip_together_and_others_alone(
    strategy: str, toy, toy_config, tmp_path, learners
) -> None:
    first, second = learners.run(train_with_overflow, toy, toy_config, tmp_path / "train", strategy)
    assert second == (1, FIRST / 2)
    assert first == (second if strategy in (*SAME, "h-adpsgd") else (0, FIRST))
    assert all(weight.isfinite().all() for weight in last_weights(tmp_path / "train").values())
    if strategy in SAME:
        line = metrics(tmp_path / "train", "learners")[-1]
        assert line["consensus_distance"] == 0
