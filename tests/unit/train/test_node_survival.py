"""Learners as the command starts them train without a node that is lost, or a learner that is silent."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from command import (
    ENDED_S,
    LOOKS_FOR_LEARNERS,
    NUM_EPOCHS,
    Start,
    stop_with_a_batch,
    wait_for_steps,
)
from learners import batches_trained, planned, processes_of

from asrtool.distributed.members.members import node_of

TIMEOUT_S = 8  # of a silent learner; those that a busy machine keeps waiting give signs of life within it
SILENT = f"has given no sign of life for {TIMEOUT_S} s"
pytestmark = [LOOKS_FOR_LEARNERS, pytest.mark.slow]


@pytest.mark.parametrize("killed", [0, 3])
def test_nodes_that_are_left_train_what_another_had_left(
    killed: int, start: Start, toy: Path, many_epochs: Path, tmp_path: Path
) -> None:
    """A killed learner takes the other of its node with it, who waits for it; with learner 0 its duties pass on."""
    out, num, node_size = tmp_path / "train", 4, 2
    options = ("--num-learners", str(num), "--set", f"distributed.h-adpsgd.node_size={node_size}")
    process = start("--strategy", "h-adpsgd", *options)
    wait_for_steps(out, 2, num_learners=num)
    os.kill(stop_with_a_batch(out, killed), signal.SIGKILL)
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 0, log
    why = dict.fromkeys(node_of(killed, node_size), f"lost learner {killed} of its node")
    why[killed] = "was ended by SIGKILL"
    for rank, reason in why.items():
        assert f"WARNING learner {rank} {reason}: {num - node_size} train without it" in log, log
    assert batches_trained(out) == planned(toy, many_epochs)
    summary = json.loads((out / "train.json").read_text(encoding="utf-8"))
    assert summary["lost"].keys() == {str(rank) for rank in why}
    assert summary["num_learners"] == num - node_size
    assert summary["num_samples"] == 24 * NUM_EPOCHS
    assert "Traceback" not in log
    assert not processes_of(out)


@pytest.mark.parametrize(
    ("strategy", "num", "why"),
    [
        ("adpsgd-random", 3, {1: SILENT}),
        ("h-adpsgd", 4, {1: SILENT, 0: "lost learner 1 of its node"}),
    ],
)
def test_others_train_without_a_learner_that_is_silent(
    strategy: str, num: int, why: dict[int, str], start: Start, toy: Path, many_epochs: Path, tmp_path: Path
) -> None:
    """Its batches are assigned again however soon the others have trained theirs."""
    out = tmp_path / "train"
    options = ("--num-learners", str(num), "--set", "distributed.h-adpsgd.node_size=2")
    process = start("--strategy", strategy, *options, "--set", f"distributed.timeout_s={TIMEOUT_S}")
    wait_for_steps(out, 2, num_learners=num)
    stopped = stop_with_a_batch(out, 1)
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 0, log
    for rank, reason in why.items():
        assert f"WARNING learner {rank} {reason}: {num - len(why)} train without it" in log, log
    assert batches_trained(out) == planned(toy, many_epochs)
    assert json.loads((out / "train.json").read_text(encoding="utf-8"))["lost"] == {
        str(rank): reason for rank, reason in why.items()
    }
    assert not Path(f"/proc/{stopped}").exists()
    assert not processes_of(out)
