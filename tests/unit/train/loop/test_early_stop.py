"""Trainings whose rate, and whose end, follow the loss on dev: against the rule, under every strategy, and resumed."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from command import LOOKS_FOR_LEARNERS, Start, stop_with_a_batch, wait_for_steps
from learners import MANY_BATCHES, batches_trained, planned
from rendezvous import ENDED_S
from toy_task import assert_same_bits, last_weights
from trainings import LOCKSTEP, metrics, named, run_training, summary

from asrtool.train.checkpoints.checkpoint import State
from asrtool.train.checkpoints.coordinator import CheckpointCoordinator
from asrtool.train.ledger import read_assigned
from asrtool.train.loop import loop
from asrtool.train.loop.evaluation import Evaluation
from asrtool.train.loop.loop import Training
from asrtool.train.loop.loss import Sums
from asrtool.train.loop.metrics import Reports

pytestmark = pytest.mark.slow

NUM_EPOCHS, PATIENCE = 9, 2
LOSSES = (5.0, 4.0, 4.5, 3.0, 3.0, 3.5, 1.0, 1.0, 1.0)  # of each epoch; 3 is the lowest for two
BEST, LAST = 4, 6
STOPS = (f"train.num_epochs={NUM_EPOCHS}", f"train.early_stop={PATIENCE}")
PLATEAU = (
    "train.schedule=plateau",
    "train.plateau.warmup_fraction=0",
    "train.plateau.patience=1",
    "train.plateau.factor=0.5",
)
RATES = [1, 1, 1, 0.5, 0.5, 0.25, 0.125]  # of each epoch, as multiples of the peak


@contextlib.contextmanager
def scripted(losses: Sequence[float] = LOSSES) -> Iterator[None]:
    """Inside, the losses on dev are these, whatever the model."""
    report_dev = Reports.report_dev

    def report(self: Reports, _: Sums, state: State) -> float:
        return report_dev(self, Sums(losses[state.epoch - 1], 1), state)

    with patch.object(Reports, "report_dev", report):
        yield


@contextlib.contextmanager
def rates_noted() -> Iterator[list[tuple[int, float]]]:
    """The epoch and the learning rate of each step inside."""
    found: list[tuple[int, float]] = []
    train_step, set_rate = Training.step, loop.set_learning_rate

    def step(self: Training, assignment: Any, batch: Any) -> Any:
        found.append((assignment.round.epoch, 0.0))
        return train_step(self, assignment, batch)

    def note(optimizer: torch.optim.Optimizer, rate: float) -> None:
        found[-1] = (found[-1][0], rate)
        set_rate(optimizer, rate)

    with patch.object(Training, "step", step), patch.object(loop, "set_learning_rate", note):
        yield found


def assert_ended_early(out: Path) -> None:
    final = summary(out)
    assert (final["stopped_early"], final["best_epoch"], final["best_dev_loss"]) == (True, BEST, LOSSES[BEST - 1])
    assert [line["loss"] for line in metrics(out, "dev")][:LAST] == list(LOSSES[:LAST])


def test_training_ends_after_so_many_epochs_without_a_lower_loss(train_toy, tmp_path: Path, caplog) -> None:
    out = tmp_path / "train"
    with scripted(), caplog.at_level(logging.INFO):
        train_toy(out, *STOPS)
    assert_ended_early(out)
    final = summary(out)
    assert (final["num_epochs"], final["dev_loss"]) == (LAST, LOSSES[LAST - 1])
    assert len(metrics(out, "dev")) == LAST
    assert {epoch for epoch, _ in batches_trained(out)} == set(range(1, LAST + 1))
    assert f"training ends early, after {LAST} of {NUM_EPOCHS} epochs: the loss on dev was lowest, 3.0000, after 4" in (
        caplog.text
    )
    assert "are dropped" not in caplog.text
    assert BEST * final["num_steps"] // LAST in [entry["step"] for entry in final["checkpoints"]]  # the best is kept
    assert read_assigned(out, 0) == {"batches": [], "num_rounds": final["num_steps"] + 2}
    before = {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    train_toy(out, *STOPS)
    assert before == {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def test_a_loss_that_is_no_number_is_warned_of_and_never_the_best(train_toy, tmp_path: Path, caplog) -> None:
    with scripted((math.nan, 2.0)):
        train_toy(tmp_path / "train", "train.num_epochs=2")
    assert (summary(tmp_path / "train")["best_epoch"], summary(tmp_path / "train")["best_dev_loss"]) == (2, 2.0)
    assert caplog.text.count("the loss on dev is NaN or infinite") == 1


@pytest.mark.parametrize(("losses", "warned"), [((5.0, 4.0, 4.5, 4.6, 4.7, 4.8), 1), ((5.0, 4.0, 4.5, 3.0, 2.0), 0)])
def test_overfitting_is_warned_of_once(train_toy, tmp_path: Path, caplog, losses: Sequence[float], warned: int) -> None:
    with scripted(losses):
        train_toy(tmp_path / "train", f"train.num_epochs={len(losses)}", "train.log_every_steps=1")
    assert caplog.text.count("overfitting: the loss on dev was lowest, 4.0000, after epoch 2") == warned


def interrupted_at(moment: str) -> Any:
    """Patch what ends a training in its last epoch, at `moment`."""
    num_evaluated, together, end_early = itertools.count(1), Evaluation.on_all_learners, CheckpointCoordinator.end_early

    def evaluating(*args: Any) -> Sums:
        if next(num_evaluated) == LAST:
            signal.raise_signal(signal.SIGINT)
        return together(*args)

    def ending(self: CheckpointCoordinator) -> None:
        end_early(self)
        raise KeyboardInterrupt

    if moment == "evaluation":
        return patch.object(Evaluation, "on_all_learners", evaluating)
    return patch.object(CheckpointCoordinator, "end_early", ending)


@pytest.mark.parametrize("moment", ["evaluation", "end"])
def test_interrupted_at_the_epoch_that_is_the_last_it_ends_there_when_it_resumes(
    train_toy, tmp_path, moment: str
) -> None:
    with scripted():
        undisturbed = train_toy(tmp_path / "undisturbed", *STOPS)
        out = tmp_path / "train"
        with interrupted_at(moment), pytest.raises(KeyboardInterrupt):
            train_toy(out, *STOPS)
        assert not (out / "train.json").exists()
        assert_same_bits(train_toy(out, *STOPS), undisturbed)
    assert_ended_early(out)
    assert [line["epoch"] for line in metrics(out, "dev")] == list(range(1, LAST + 1))
    assert batches_trained(out) == batches_trained(tmp_path / "undisturbed")


def train(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> list[tuple[int, float]]:
    """Be one of the learners; epoch and rate by step."""
    with scripted(), rates_noted() as found:
        run_training(toy, config, out, overrides)
    return found


@pytest.mark.parametrize("name", ["allreduce", "bmuf", "h-adpsgd by adpsgd-d1", "adpsgd-random", "ps-async", "hogwild"])
def test_learners_of_every_strategy_end_early_and_their_rates_are_those_of_losses_before(
    learners, toy, small_batches_config, tmp_path, name: str
) -> None:
    """Asynchronous learners may get a loss later, after the start of the next epoch."""
    out, config = tmp_path / "train", tmp_path / "whole.toml"
    overrides = (*named(name), *STOPS, *PLATEAU, "train.peak_lr=0.016")
    rates = learners.run(train, toy, small_batches_config, out, overrides)
    assert_ended_early(out)
    config.write_text(MANY_BATCHES.replace("num_epochs = 3", f"num_epochs = {NUM_EPOCHS}"))
    whole, trained = planned(toy, config), batches_trained(out)
    assert {batch for batch in whole if batch[0] <= LAST} <= set(trained) <= set(whole)
    assert set(trained.values()) == {1}
    assert [read_assigned(out, rank)["batches"] for rank in range(4)] == [[]] * 4  # type: ignore[index]
    for found in rates:
        for epoch, rate in found:
            allowed = RATES[: min(epoch, LAST) + 1]
            assert rate / 0.016 in (allowed[-1:] if name in LOCKSTEP else allowed)
    if name in LOCKSTEP:
        assert max(epoch for epoch, _ in trained) == LAST == summary(out)["num_epochs"]
        assert rates[1:] == rates[:1] * 3


@LOOKS_FOR_LEARNERS
def test_others_end_early_without_the_learner_that_evaluated(start: Start, many_epochs: Path, tmp_path: Path) -> None:
    """Emulated compute moves all weights one way, for longer than is good for any model."""
    out = tmp_path / "train"
    text = many_epochs.read_text().replace("num_epochs = 8", "num_epochs = 400\nearly_stop = 3\nkeep_best = 1")
    many_epochs.write_text(text)
    changed = ("--set", "train.peak_lr=0.003", "--set", "train.ema_decay=0.9")
    process = start("--strategy", "adpsgd-random", "--compute-ms", "20", *changed)
    wait_for_steps(out, 2)
    os.kill(stop_with_a_batch(out, 0), signal.SIGKILL)
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 0, log
    final = summary(out)
    assert final["stopped_early"], log
    assert final["lost"] == {"0": "was ended by SIGKILL"}
    assert final["num_epochs"] < 400
    weights = last_weights(out)
    averages = {name: value for name, value in weights.items() if name.startswith("ema ")}
    assert len(averages) == len(weights) / 2
    assert all(value.isfinite().all() for value in averages.values())
    losses = {line["epoch"]: line["loss"] for line in metrics(out, "dev")}
    assert final["best_epoch"] == min(losses, key=lambda epoch: losses[epoch])
