"""Learners as the command starts them train without those that are lost, and what these had left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from command import (
    LOOKS_FOR_LEARNERS,
    NUM_EPOCHS,
    Start,
    kill_all,
    stop_with_a_batch,
    wait_for_steps,
)
from learners import batches_trained, planned, processes_of, saved_learners
from rendezvous import ENDED_S, wait_until
from trainings import summary

pytestmark = LOOKS_FOR_LEARNERS
slow = pytest.mark.slow
TIMEOUT_S = 8  # of a silent learner; those that a busy machine keeps waiting give signs of life within it
SILENT = f"has given no sign of life for {TIMEOUT_S} s"
KILLED = "was ended by SIGKILL"


@slow
@pytest.mark.parametrize(
    ("strategy", "num", "lost"),
    [
        # The last one alone ends the training, and the duties of learner 0 pass on; also one after the other.
        pytest.param("adpsgd-random", 2, {0: KILLED}, id="first"),
        pytest.param("adpsgd-random", 3, {0: KILLED, 1: KILLED}, id="two"),
        # One that is lost takes the other of its node with it, which waits for it.
        pytest.param("h-adpsgd", 4, {3: KILLED, 2: "lost another learner of its node"}, id="node"),
        # Its batches are assigned again however soon the others have trained theirs.
        pytest.param("adpsgd-random", 3, {1: SILENT}, id="silent"),
    ],
)
def test_others_train_without_lost_learners(
    strategy: str, num: int, lost: dict[int, str], start: Start, toy: Path, many_epochs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "train"
    options = ("--num-learners", str(num), "--set", "distributed.h-adpsgd.node_size=2")
    if SILENT in lost.values():
        options = (*options, "--set", f"distributed.timeout_s={TIMEOUT_S}")
    process = start("--strategy", strategy, *options)
    for rank, why in lost.items():
        if why in (KILLED, SILENT):
            wait_for_steps(out, 2, num_learners=num)
            stopped = stop_with_a_batch(out, rank)
        if why == KILLED:
            os.kill(stopped, signal.SIGKILL)
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 0, log
    assert "Traceback" not in log
    for rank, why in lost.items():
        assert f"WARNING learner {rank} {why}: " in log, log
    assert f"{num - len(lost)} train without it" in log, log
    assert batches_trained(out) == planned(toy, many_epochs)
    final = summary(out)
    assert final["lost"] == {str(rank): why for rank, why in lost.items()}
    assert (final["num_learners"], final["num_samples"]) == (num - len(lost), 24 * NUM_EPOCHS)
    assert not Path(f"/proc/{stopped}").exists()
    assert not processes_of(out)


@slow
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

    def are_without_it() -> bool:
        assert process.poll() is None
        return [1 - lost, 2] in saved_learners(out)

    wait_until(are_without_it)
    kill_all(process, out)
    last = start(*options)
    _, log = last.communicate(timeout=ENDED_S)
    assert last.returncode == 0, log
    assert batches_trained(out) == planned(toy, many_epochs)
    assert summary(out)["num_samples"] == 24 * 40
