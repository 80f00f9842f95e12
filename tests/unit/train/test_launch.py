"""Learners as the command starts them: where one of them ends, the others do as well, or train without it."""

from __future__ import annotations

import contextlib
import json
import os
import random as random_module
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from learners import MANY_BATCHES, batches_trained, learners_of, planned, processes_of, saved_learners

from asrtool.distributed.members import node_of
from asrtool.distributed.timeout import TIMEOUT_S
from asrtool.train.assigned import read_assigned

NUM_LEARNERS = 3
NUM_EPOCHS = 8  # seconds of training: enough to see it run before it has ended
ENDED_S = 120  # bounds a hang, however slow the machine
# Learners that wait for nobody, and end where one of them is lost.
STRATEGY = "adpsgd-pairs"
SILENT = f"has given no sign of life for {TIMEOUT_S:g} s"
Start = Callable[..., subprocess.Popen[str]]

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for learners in /proc")


@pytest.fixture
def toy_config(tmp_path: Path) -> Path:
    """As ever, with small batches and more epochs."""
    path = tmp_path / "toy.toml"
    path.write_text(MANY_BATCHES.replace("num_epochs = 3", f"num_epochs = {NUM_EPOCHS}"))
    return path


@pytest.fixture
def start(toy: Path, toy_config: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a training in `tmp_path`/train by the command line, with emulated computation so that it takes a while."""
    started: list[subprocess.Popen[str]] = []

    def start_with(*options: str) -> subprocess.Popen[str]:
        asrtool = Path(sys.executable).with_name("asrtool")
        paths = [toy / "features", toy / "tokenizer", tmp_path / "train", "--config", toy_config]
        patient = ("--set", "distributed.timeout_s=100")  # a learner that a busy machine keeps waiting is not lost
        words = [asrtool, "train", *paths, "--num-learners", NUM_LEARNERS, "--compute-ms", 80, *patient, *options]
        process = subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start_with
    for process in started:
        if process.poll() is None:
            process.kill()
        assert process.stderr
        process.stderr.close()


def steps(out: Path) -> dict[str, set[str]]:
    """What each learner has recorded, by name of its file: whole lines, no two of which are the same."""
    files = (out / "learners").glob("*.jsonl")
    return {path.name: {line for line in path.read_text().splitlines(True) if line.endswith("\n")} for path in files}


def wait_for_steps(
    out: Path, num: int, before: dict[str, set[str]] | None = None, num_learners: int = NUM_LEARNERS
) -> None:
    """Until each learner has done so many that were not there `before`."""
    until = time.monotonic() + ENDED_S
    while time.monotonic() < until:
        new = [found - (before or {}).get(name, set()) for name, found in steps(out).items()]
        if len(new) == num_learners and min(map(len, new)) >= num:
            return
        time.sleep(0.05)
    raise AssertionError(f"no {num} steps within {ENDED_S} s")


def wait_for_the_end(out: Path) -> None:
    """Until no learner is left, and no supervisor; AssertionError where that takes too long."""
    until = time.monotonic() + ENDED_S
    while processes_of(out):
        assert time.monotonic() < until
        time.sleep(0.1)


def stop_with_a_batch(out: Path, rank: int) -> int:
    """Stop learner `rank` where it has drawn a batch and not trained it; its process number."""
    process = learners_of(out)[rank]
    until = time.monotonic() + ENDED_S
    while time.monotonic() < until:
        os.kill(process, signal.SIGSTOP)
        while Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "T":
            time.sleep(0.001)
        drawn = read_assigned(out, rank)
        if drawn and drawn["batches"]:
            return process
        os.kill(process, signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError(f"learner {rank} drew no batch within {ENDED_S} s")


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


def test_a_killed_learner_ends_those_that_wait_for_it_and_is_named_with_batches_of_this_run(
    start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "train"
    kill_one(start, out, "allreduce")

    (out / "learners" / "1.assigned").write_text(json.dumps({"batches": [[97, 98, 99]], "num_rounds": 100}))
    process = start("--strategy", "allreduce")
    until = time.monotonic() + ENDED_S
    while not (found := learners_of(out)).get(1):
        assert time.monotonic() < until
        time.sleep(0.01)
    os.kill(found[1], signal.SIGKILL)  # as it starts
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 1
    assert f"error: learner 1 of {NUM_LEARNERS} on {os.uname().nodename} was ended by SIGKILL" in log
    assert "epoch 97" not in log


@pytest.mark.parametrize("lost", [(1, 2), (0, 1)])
def test_others_train_without_a_killed_learner_and_what_it_had_left(
    lost: tuple[int, int], start: Start, toy: Path, toy_config: Path, tmp_path: Path
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
    assert batches_trained(out) == planned(toy, toy_config)
    summary = json.loads((out / "train.json").read_text(encoding="utf-8"))
    assert summary["lost"] == {str(rank): "was ended by SIGKILL" for rank in lost}
    assert summary["num_learners"] == 1
    assert summary["num_samples"] == 24 * NUM_EPOCHS
    assert not processes_of(out)


@pytest.mark.parametrize(("killed", "num", "node_size"), [(0, 4, 2), (3, 4, 2), (1, 3, 1)])
def test_nodes_that_are_left_train_what_another_had_left(
    killed: int, num: int, node_size: int, start: Start, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    """A killed learner takes the other of its node with it, who waits for it; with learner 0 its duties pass on."""
    out = tmp_path / "train"
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
    assert batches_trained(out) == planned(toy, toy_config)
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
    strategy: str, num: int, why: dict[int, str], start: Start, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    """By the default timeout. Its batches are dealt again however soon the others have trained theirs."""
    out = tmp_path / "train"
    options = ("--num-learners", str(num), "--set", "distributed.h-adpsgd.node_size=2")
    process = start("--strategy", strategy, *options, "--set", f"distributed.timeout_s={TIMEOUT_S:g}")
    wait_for_steps(out, 2, num_learners=num)
    stopped = stop_with_a_batch(out, 1)
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 0, log
    for rank, reason in why.items():
        assert f"WARNING learner {rank} {reason}: {num - len(why)} train without it" in log, log
    assert batches_trained(out) == planned(toy, toy_config)
    assert json.loads((out / "train.json").read_text(encoding="utf-8"))["lost"] == {
        str(rank): reason for rank, reason in why.items()
    }
    assert not Path(f"/proc/{stopped}").exists()
    assert not processes_of(out)


@pytest.mark.parametrize("lost", [1, 0])
def test_what_survivors_have_trained_is_trained_once_after_all_were_killed(
    lost: int, start: Start, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    """From checkpoints of which one learner is lost; long before the end, on any machine."""
    toy_config.write_text(toy_config.read_text().replace(f"num_epochs = {NUM_EPOCHS}", "num_epochs = 40"))
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
    for number in (*processes_of(out), process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.wait(ENDED_S)
    wait_for_the_end(out)
    last = start(*options)
    _, log = last.communicate(timeout=ENDED_S)
    assert last.returncode == 0, log
    assert batches_trained(out) == planned(toy, toy_config)
    assert json.loads((out / "train.json").read_text(encoding="utf-8"))["num_samples"] == 24 * 40


def test_a_killed_learner_ends_those_that_do_not_wait_for_it_and_the_same_command_resumes(
    start: Start, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    """The last time under nohup, where a terminal that is closed ends nothing."""
    out = tmp_path / "train"
    kill_one(start, out, STRATEGY)

    before = steps(out)
    stopped = start("--strategy", STRATEGY)
    wait_for_steps(out, 3, before)
    stopped.send_signal(signal.SIGTERM)
    _, log = stopped.communicate(timeout=ENDED_S)
    assert stopped.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)
    assert "saving a checkpoint" in log
    assert not learners_of(out)
    assert not (out / "train.json").exists()

    before = steps(out)
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        last = start("--strategy", STRATEGY)
    finally:
        signal.signal(signal.SIGHUP, handler)
    wait_for_steps(out, 2, before)
    last.send_signal(signal.SIGHUP)
    _, log = last.communicate(timeout=ENDED_S)
    assert last.returncode == 0, log
    assert "resuming after step" in log
    assert batches_trained(out) == planned(toy, toy_config)
    assert json.loads((out / "train.json").read_text(encoding="utf-8"))["num_samples"] == 24 * NUM_EPOCHS


def test_learners_end_with_a_launcher_that_is_killed(start: Start, tmp_path: Path) -> None:
    process = start("--strategy", "adpsgd-fixed")
    wait_for_steps(tmp_path / "train", 2)
    process.kill()
    wait_for_the_end(tmp_path / "train")


def test_learners_end_with_a_launcher_that_is_killed_while_they_start(start: Start, tmp_path: Path) -> None:
    process = start("--strategy", "adpsgd-fixed")
    until = time.monotonic() + ENDED_S
    while not learners_of(tmp_path / "train"):
        assert time.monotonic() < until
        time.sleep(0.01)
    process.kill()
    wait_for_the_end(tmp_path / "train")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--slow", "3:10"), "error: --slow 3: there are 3 learners; choose 0 to 2"),
        (("--slow", "0:inf"), "error: --slow 0:inf: expected RANK:FACTOR with a factor from 1 to 10,000; for example"),
        (("--slow", "0:-1"), "error: --slow 0:-1: expected RANK:FACTOR"),
        (("--slow", "0:nan"), "error: --slow 0:nan: expected RANK:FACTOR"),
    ],
)
def test_a_slow_learner_that_cannot_be_is_reported(options: tuple[str, ...], message: str, start: Start) -> None:
    process = start("--strategy", "adpsgd-fixed", *options)
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 1
    assert log.startswith(message)


def test_what_is_wrong_is_reported_before_learners_are_started(start: Start) -> None:
    process = start("--strategy", "single")
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 1
    assert log.startswith(
        "error: distributed.strategy is single, distributed.num_learners 3; choose another --strategy"
    )


def test_after_all_learners_were_killed_at_once_nothing_is_lost_or_trained_twice(
    start: Start, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    """Three times, at moments that differ by run; the same command resumes each time."""
    out = tmp_path / "train"
    random = random_module.SystemRandom()
    options = ("--strategy", "adpsgd-random", "--compute-ms", "30", "--set", "train.save_every_steps=5")
    for _ in range(3):
        before = steps(out)
        process = start(*options)
        wait_for_steps(out, 1, before)
        time.sleep(random.uniform(0, 0.4))
        for number in (*processes_of(out), process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait(ENDED_S)
        wait_for_the_end(out)
    assert not (out / "train.json").exists()
    last = start(*options)
    _, log = last.communicate(timeout=ENDED_S)
    assert last.returncode == 0, log
    assert batches_trained(out) == planned(toy, toy_config)
    entries = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    drifts = [entry["drift"] for entry in entries if entry["kind"] == "learners" and "drift" in entry]
    assert len(drifts) >= NUM_EPOCHS
    assert max(drifts) < 1e-6
