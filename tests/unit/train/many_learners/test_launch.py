"""Learners as the command starts them: where one of them ends, the others do as well, and the same command resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from command import (
    ENDED_S,
    LOOKS_FOR_LEARNERS,
    NUM_EPOCHS,
    NUM_LEARNERS,
    Start,
    command_words,
    steps,
    stop_with_a_batch,
    wait_for_steps,
    wait_for_the_end,
    wait_until,
)
from learners import batches_trained, learners_of, planned
from trainings import summary

from asrtool.cli.main import cli
from asrtool.errors import AsrtoolError

# Learners that wait for nobody, and end where one of them is lost.
STRATEGY = "hogwild"
pytestmark = LOOKS_FOR_LEARNERS


def kill_one(start: Start, out: Path, strategy: str, *options: str) -> None:
    killed = start("--strategy", strategy, *options)
    wait_for_steps(out, 2)
    os.kill(stop_with_a_batch(out, 1), signal.SIGKILL)
    _, log = killed.communicate(timeout=ENDED_S)
    assert killed.returncode == 1
    error = log.splitlines()[-1]
    assert error.startswith(f"error: learner 1 of {NUM_LEARNERS} on {os.uname().nodename} was ended by SIGKILL")
    assert "before it had trained batch" in error
    assert "run the same command again" in error
    assert not learners_of(out)


@pytest.mark.slow
def test_a_killed_learner_ends_those_that_wait_for_it_and_is_named_with_batches_of_this_run(
    start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "train"
    kill_one(start, out, "allreduce")

    (out / "learners" / "1.assigned").write_text(json.dumps({"batches": [[97, 98, 99]], "num_rounds": 100}))
    process = start("--strategy", "allreduce")
    wait_until(lambda: learners_of(out).get(1))
    os.kill(learners_of(out)[1], signal.SIGKILL)  # as it starts
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 1
    assert f"error: learner 1 of {NUM_LEARNERS} on {os.uname().nodename} was ended by SIGKILL" in log
    assert "epoch 97" not in log


@pytest.mark.slow
def test_a_killed_learner_ends_those_that_do_not_wait_for_it_and_the_same_command_resumes(
    start: Start, toy: Path, many_epochs: Path, tmp_path: Path
) -> None:
    """The last time as a Python of its own, under nohup, where a terminal that is closed ends nothing."""
    out = tmp_path / "train"
    kill_one(start, out, STRATEGY)

    before = steps(out)
    stopped = start("--strategy", STRATEGY)
    wait_for_steps(out, 3, before)
    stopped.send_signal(signal.SIGTERM)
    _, log = stopped.communicate(timeout=ENDED_S)
    assert stopped.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)
    assert "saving a checkpoint" in log
    assert log.count("to resume: asrtool train ") == 1
    assert not learners_of(out)
    assert not (out / "train.json").exists()

    before = steps(out)
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        words = [Path(sys.executable).with_name("asrtool"), *command_words(toy, many_epochs, tmp_path)]
        last = subprocess.Popen([*words, "--strategy", STRATEGY], stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGHUP, handler)
    wait_for_steps(out, 2, before)
    last.send_signal(signal.SIGHUP)
    _, log = last.communicate(timeout=ENDED_S)
    assert last.returncode == 0, log
    assert "resuming after step" in log
    assert batches_trained(out) == planned(toy, many_epochs)
    assert summary(out)["num_samples"] == 24 * NUM_EPOCHS


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [0, 2])
def test_learners_end_with_a_launcher_that_is_killed(num_steps: int, start: Start, tmp_path: Path) -> None:
    """While they start, or while they train."""
    process = start("--strategy", "adpsgd-fixed")
    wait_until(lambda: learners_of(tmp_path / "train"))
    if num_steps:
        wait_for_steps(tmp_path / "train", num_steps)
    process.kill()
    wait_for_the_end(tmp_path / "train")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--slow", "3:10"), "--slow 3: there are 3 learners; choose 0 to 2"),
        (("--slow", "0:inf"), "--slow 0:inf: expected RANK:FACTOR with a factor from 1 to 10,000; for example"),
        (("--slow", "0:nan"), "--slow 0:nan: expected RANK:FACTOR"),
        (
            ("--strategy", "single"),
            "distributed.strategy is single, distributed.num_learners 3; choose another --strategy",
        ),
    ],
)
def test_what_is_wrong_is_reported_before_learners_are_started(
    options: tuple[str, ...], message: str, toy: Path, many_epochs: Path, tmp_path: Path
) -> None:
    words = command_words(toy, many_epochs, tmp_path, "--strategy", "adpsgd-fixed", *options)
    result = CliRunner().invoke(cli, words)
    assert isinstance(result.exception, AsrtoolError)
    assert str(result.exception).startswith(message)
