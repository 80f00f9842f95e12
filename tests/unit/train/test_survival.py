"""Learners as the command starts them train without one that is lost, and what it had left."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from command import (
    ENDED_S,
    LOOKS_FOR_LEARNERS,
    NUM_EPOCHS,
    Start,
    kill_all,
    stop_with_a_batch,
    wait_for_steps,
)
from learners import batches_trained, planned, processes_of, saved_learners

pytestmark = LOOKS_FOR_LEARNERS


@pytest.mark.parametrize("lost", [pytest.param((1, 2), marks=pytest.mark.slow), (0, 1)])
def test_others_train_without_a_killed_learner_and_what_it_had_left(
    lost: tuple[int, int], start: Start, toy: Path, many_epochs: Path, tmp_path: Path
) -> None:
    """Twice, one after the other; the last one alone ends the training."""
    out = tmp_path / "train"
    process = start("--strategy", "adpsgd-random")
    for rank in lost:
        wait_for_steps(out, 2)
        os.kill(stop_with_a_batch(out, rank), signal.SIGKILL)
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 0, log
    for rank in lost:
        assert re.search(f"WARNING learner {rank} was ended by SIGKILL: [12] train without it", log), log
    assert batches_trained(out) == planned(toy, many_epochs)
    summary = json.loads((out / "train.json").read_text(encoding="utf-8"))
    assert summary["lost"] == {str(rank): "was ended by SIGKILL" for rank in lost}
    assert summary["num_learners"] == 1
    assert summary["num_samples"] == 24 * NUM_EPOCHS
    assert not processes_of(out)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 0])
def test_what_survivors_have_trained_is_trained_once_after_all_were_killed(
    lost: int, start: Start, toy: Path, many_epochs: Path, tmp_path: Path
) -> None:
    """From checkpoints of which one learner is lost; long before the end, on any machine."""
    many_epochs.write_text(many_epochs.read_text().replace(f"num_epochs = {NUM_EPOCHS}", "num_epochs = 40"))
    out = tmp_path / "train"
    options = ("--strategy", "adpsgd-fixed", "--compute-ms", "40", "--set", "train.save_every_steps=3")
    process = start(*options)
    wait_for_steps(out, 2)
    os.kill(stop_with_a_batch(out, lost), signal.SIGKILL)
    until = time.monotonic() + ENDED_S
    while [1 - lost, 2] not in (learners := saved_learners(out)):
        assert process.poll() is None, learners
        assert time.monotonic() < until
        time.sleep(0.01)
    kill_all(process, out)
    last = start(*options)
    _, log = last.communicate(timeout=ENDED_S)
    assert last.returncode == 0, log
    assert batches_trained(out) == planned(toy, many_epochs)
    assert json.loads((out / "train.json").read_text(encoding="utf-8"))["num_samples"] == 24 * 40
