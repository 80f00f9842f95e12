"""A learner joins a training that runs, as the command starts it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import start_command
from learners import MANY_BATCHES, batches_trained, learners_of, planned
from rendezvous import ENDED_S, wait_until
from trainings import metrics, recorded_before, summary

from asrtool.train.checkpoints.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow

NUM_EPOCHS = 16
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ever, with small batches, more epochs, and all checkpoints kept."""
    path = tmp_path_factory.mktemp("join") / "toy.toml"
    path.write_text(MANY_BATCHES.replace("num_epochs = 3", f"num_epochs = {NUM_EPOCHS}\nkeep_last = 1000"))
    return path


@pytest.fixture(scope="module")
def start(toy: Path, config: Path) -> Iterator[Start]:
    """Start a training of two learners in a folder by the command line, or another learner of it."""
    with contextlib.ExitStack() as stack:

        def start_with(out: Path, *options: str) -> subprocess.Popen[str]:
            words = ["train", toy / "features", toy / "tokenizer", out, "--config", config]
            words += ["--strategy", "adpsgd-random", "--compute-ms", 60, "--set", "distributed.timeout_s=100"]
            return start_command(stack, [str(word) for word in (*words, *options)], out.parent)

        yield start_with


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    def is_there() -> bool:
        assert process.poll() is None, process.communicate(ENDED_S)[1]
        return path.exists()

    wait_until(is_there)


def ended(process: subprocess.Popen[str]) -> str:
    """What it wrote."""
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 0, log
    return log


def test_what_a_learner_that_joined_and_the_others_trained_is_in_every_checkpoint_once(
    start: Start, toy: Path, config: Path, tmp_path: Path
) -> None:
    """The two that began stand still until it is there, so that it is in time on any machine."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("looks for learners in /proc")
    out = tmp_path / "train"
    training = start(out, "--num-learners", "2")
    wait_for(out / "rendezvous.json", training)
    others = learners_of(out)
    assert sorted(others) == [0, 1]
    for process in others.values():
        os.kill(process, signal.SIGSTOP)
    joining = start(out, "--join")
    wait_for(out / "learners" / "2.jsonl", joining)
    for process in others.values():
        os.kill(process, signal.SIGCONT)
    assert "INFO learner 2 joined: 3 train" in ended(training)
    assert "INFO joined as learner 2, with the weights of learner " in ended(joining)
    check_training(out, toy, config)
    final = summary(out)
    assert (final["joined"], final["lost"], final["num_learners"]) == ([2], {}, 3)
    assert (out / "learners" / "2.jsonl").stat().st_size > 0
    assert not (out / "rendezvous.json").exists()
    assert "this training is finished" in ended(start(out, "--join"))


def check_training(out: Path, toy: Path, config: Path) -> None:
    """Each batch was trained once, and each checkpoint has what was recorded before it, in the mean of its learners."""
    of_all = planned(toy, config)
    assert batches_trained(out) == of_all
    for path in (out / "checkpoints").glob("step-????????.pt"):
        state = load_checkpoint(path)[1]
        untrained = [(epoch + 1, i) for epoch, first, end in state.untrained for i in range(first, end)]
        before = [batch for batch in of_all if batch < (state.epoch + 1, state.batch)]
        assert sorted(recorded_before(out, state)) == sorted(set(before) - set(untrained))
    drifts = [line["drift"] for line in metrics(out) if "drift" in line]
    assert len(drifts) >= NUM_EPOCHS // 2
    assert max(drifts) < 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--strategy", "allreduce"), "error: --join: a training by strategy allreduce cannot be joined, expected one"),
        ((), "train: no training that a learner can join is running there; start or resume it by the same command"),
    ],
)
def test_what_cannot_be_joined_is_said_in_one_line(
    options: tuple[str, ...], message: str, start: Start, tmp_path: Path
) -> None:
    process = start(tmp_path / "train", "--join", *options)
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 1
    assert message in log
    assert len(log.splitlines()) == 1


def test_a_training_of_other_settings_is_not_joined(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "train"
    begun = start(out, "--num-learners", "2")
    wait_for(out / "inputs.json", begun)
    process = start(out, "--join", "--set", "train.seed=5")
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 1
    assert log.startswith(f"error: {out}: the training there has another train.seed; join it with")
