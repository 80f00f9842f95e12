"""Learners as the command starts them: what they load; where one ends, the others do as well, and all resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from command import (
    LOOKS_FOR_LEARNERS,
    NUM_EPOCHS,
    NUM_LEARNERS,
    Start,
    command_words,
    steps,
    stop_with_a_batch,
    wait_for_steps,
    wait_for_the_end,
)
from commands import error_of
from learners import batches_trained, learners_of, planned
from rendezvous import ENDED_S, wait_until
from trainings import summary

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
def test_a_killed_learner_ends_those_that_wait_for_it_and_is_named_with_batches_of_this_run(start, tmp_path) -> None:
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
    start, toy, many_epochs, tmp_path
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
        (("--strategy", "single"), "distributed.strategy is single with 3 learners: choose another one"),
    ],
)
def test_what_is_wrong_is_reported_before_learners_are_started(
    options: tuple[str, ...], message: str, toy, many_epochs, tmp_path
) -> None:
    words = command_words(toy, many_epochs, tmp_path, "--strategy", "adpsgd-fixed", *options)
    assert str(error_of(*words)).startswith(message)


# Prints which modules are loaded, how many threads a process has as it forks, and if the launcher looks for GPUs.
LAUNCHER = r"""
import os, sys

def note(text):
    os.write(2, f"{text}\n".encode())

def fork(fork=os.fork):
    note(f"{len(os.listdir('/proc/self/task'))} threads as it forks")
    return fork()

def ask(launcher=os.getpid()):
    note("the launcher asks for GPUs" if os.getpid() == launcher else "a learner asks for GPUs")
    return False

class Notes:
    def find_spec(self, name, *_):
        note(f"loads {name}")
        if name == "asrtool.train.loop.loop":
            sys.modules["torch"].cuda.is_available = ask

os.fork = fork
sys.meta_path.insert(0, Notes())
from asrtool.cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "module", "num_forks", "num_compilers"),
    [("adpsgd-fixed", "gossip", 2 * NUM_LEARNERS, 0), ("allreduce", "allreduce", NUM_LEARNERS, 1)],
)
def test_learners_load_nothing_costly_and_nothing_from_the_current_directory(
    toy, toy_config, tmp_path, strategy: str, module: str, num_forks: int, num_compilers: int
) -> None:
    """Learners may have supervisors, which fork as well, and torch may load its compiler."""
    (tmp_path / "torch.py").write_text("raise SystemExit('loaded from the current directory')")
    train = [toy / "features", toy / "tokenizer", tmp_path / "train", "--config", toy_config]
    words = ["train", *map(str, train), "--num-learners", str(NUM_LEARNERS), "--strategy", strategy]
    words += ["--set", "train.num_epochs=1"]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *words], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    lines = Counter(done.stderr.splitlines())
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "train" / "train.json").exists()
    for name in (
        "torch",
        "asrtool.train.loop.loop",
        "asrtool.train.batches.shard_source",
        f"asrtool.distributed.strategies.{module}",
    ):
        assert lines[f"loads {name}"] == 1, name
    assert lines["loads torch._dynamo"] == num_compilers
    assert lines["1 threads as it forks"] == num_forks
    assert lines["a learner asks for GPUs"]
    assert not lines["the launcher asks for GPUs"]
