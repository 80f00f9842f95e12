"""Learners as the command starts them train without those that are lost, and with those that join."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import LOOKS_FOR_LEARNERS, NUM_EPOCHS, kill_all, stop_with_a_batch, wait_for_steps
from learners import MANY_BATCHES, batches_trained, learners_of, planned, processes_of, saved_learners
from rendezvous import ENDED_S, rendezvous_address, wait_until
from trainings import assert_recorded_once, metrics, summary

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
import restarts

pytestmark = [LOOKS_FOR_LEARNERS, pytest.mark.slow]
TIMEOUT_S = 8  # of a silent learner; those that a busy machine keeps waiting give signs of life within it
SILENT = f"has given no sign of life for {TIMEOUT_S} s"
KILLED = "was ended by SIGKILL"


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
    strategy: str, num: int, lost: dict[int, str], start, toy, many_epochs, tmp_path
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
    assert f"{num - len(lost)} train" in log, log
    assert batches_trained(out) == planned(toy, many_epochs)
    final = summary(out)
    assert final["lost"] == {str(rank): why for rank, why in lost.items()}
    assert (final["num_learners"], final["num_samples"]) == (num - len(lost), 24 * NUM_EPOCHS)
    assert not Path(f"/proc/{stopped}").exists()
    assert not processes_of(out)


@pytest.mark.parametrize("lost", [1, 0])
def test_what_survivors_have_trained_is_trained_once_after_all_were_killed(
    lost: int, start, toy, many_epochs, tmp_path
) -> None:
    """Checkpoints lack one lost learner; all are killed long before the end, on any machine."""
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


def test_learners_killed_at_random_moments_train_each_batch_once(toy, tmp_path, monkeypatch, capsys) -> None:
    """A short form of the benchmark, of a seed of its own at each call."""
    config = tmp_path / "toy.toml"
    config.write_text(MANY_BATCHES.replace("num_epochs = 3", "num_epochs = 12"))
    words = [toy / "features", toy / "tokenizer", tmp_path / "work", "--config", config]
    words += ["--strategies", "ps-async", "--num-kills", "2", "--num-learners", "2"]
    monkeypatch.setattr(sys, "argv", ["restarts.py", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        restarts.main()
    printed = capsys.readouterr().out
    assert end.value.code == 0, printed + (tmp_path / "work" / "ps-async.log").read_text()
    assert "each batch once" in printed


# A node is lost after 15 s without a heartbeat: on a busy machine a shorter time would end those that live.
ELASTIC = "is_host=false,last_call_timeout=8,keep_alive_interval=1,keep_alive_max_attempt=15"


@pytest.fixture
def start_agent(toy: Path, tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Start an agent, which stands for a machine with one learner, and writes to a log of this name.

    They synchronise by a store of this process, which outlives them.
    """
    torchrun, asrtool = (Path(sys.executable).with_name(name) for name in ("torchrun", "asrtool"))
    with rendezvous_address() as place, contextlib.ExitStack() as stack:
        elastic = ["--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "5", "--local-addr", "127.0.0.1"]
        elastic += ["--rdzv-backend", "c10d", "--rdzv-id", "elastic", "--rdzv-conf", ELASTIC]
        elastic += ["--rdzv-endpoint", f"127.0.0.1:{place['MASTER_PORT']}"]
        train = ["--no-python", asrtool, "train", toy / "features", toy / "tokenizer", tmp_path / "train"]
        train += ["--strategy", "allreduce", "--config", tmp_path / "toy.toml", "--compute-ms", "100"]

        def start(name: str) -> subprocess.Popen[bytes]:
            with open(tmp_path / name, "w") as log:
                agent = stack.enter_context(subprocess.Popen([torchrun, *elastic, *train], stdout=log, stderr=log))
            stack.callback(agent.kill)
            return agent

        yield start


def test_when_a_machine_is_lost_those_left_resume_with_their_optimizer(start_agent, toy, tmp_path) -> None:
    config, out = tmp_path / "toy.toml", tmp_path / "train"
    config.write_text(MANY_BATCHES.replace("num_epochs = 3", "num_epochs = 6").replace("steps = 9", "steps = 3"))
    left, lost = start_agent("left"), start_agent("lost")
    logs = lambda: (tmp_path / "left").read_text() + (tmp_path / "lost").read_text()  # noqa: E731
    wait_until(lambda: [0, 1] in saved_learners(out), logs)  # the first one may have begun alone
    learners = [process for process, (parent, _) in processes_of(out).items() if parent == lost.pid]
    for process in (*learners, lost.pid):
        os.kill(process, signal.SIGKILL)
    lost.wait(ENDED_S)
    left.wait(ENDED_S)
    log = (tmp_path / "left").read_text()
    assert left.returncode == 0, log
    assert "with 1 learners instead of 2: from the mean of their weights, with their optimizer" in log
    assert batches_trained(out) == planned(toy, config)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    def is_there() -> bool:
        assert process.poll() is None, process.communicate(ENDED_S)[1]
        return path.exists()

    wait_until(is_there)


def ended(process: subprocess.Popen[str]) -> str:
    """Return its output."""
    _, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 0, log
    return log


GOSSIP = ("--strategy", "adpsgd-random", "--compute-ms", "60")


def test_what_a_learner_that_joined_and_the_others_trained_is_in_every_checkpoint_once(
    start, toy, many_epochs, tmp_path
) -> None:
    """The two that began stand still until it is there, so that it is in time on any machine."""
    more_epochs = many_epochs.read_text().replace(f"num_epochs = {NUM_EPOCHS}", "num_epochs = 16\nkeep_last = 1000")
    many_epochs.write_text(more_epochs)
    out = tmp_path / "train"
    training = start(*GOSSIP, "--num-learners", "2")
    wait_for(out / "rendezvous.json", training)
    others = learners_of(out)
    assert sorted(others) == [0, 1]
    for process in others.values():
        os.kill(process, signal.SIGSTOP)
    joining = start(*GOSSIP, "--join")
    wait_for(out / "learners" / "2.jsonl", joining)
    for process in others.values():
        os.kill(process, signal.SIGCONT)
    assert "INFO learner 2 joined: 3 train" in ended(training)
    assert "INFO joined as learner 2, with the weights of learner " in ended(joining)
    assert_recorded_once(out, toy, many_epochs)
    drifts = [line["drift"] for line in metrics(out) if "drift" in line]
    assert len(drifts) >= NUM_EPOCHS
    assert max(drifts) < 1e-6
    final = summary(out)
    assert (final["joined"], final["lost"], final["num_learners"]) == ([2], {}, 3)
    assert (out / "learners" / "2.jsonl").stat().st_size > 0
    assert not (out / "rendezvous.json").exists()
    assert "this training is finished" in ended(start(*GOSSIP, "--join"))


def test_what_cannot_be_joined_is_said_in_one_line(start, tmp_path) -> None:
    def refused(*options: str) -> str:
        process = start(*GOSSIP, "--join", *options)
        _, log = process.communicate(timeout=ENDED_S)
        assert (process.returncode, log.count("\n")) == (1, 1)
        return log

    by_another = refused("--strategy", "allreduce")
    assert by_another.startswith("error: --join: a training by strategy allreduce cannot be joined, expected one")
    assert "train: no training that a learner can join is running there; start or resume it by the same" in refused()
    wait_for(tmp_path / "train" / "inputs.json", start(*GOSSIP, "--num-learners", "2"))
    assert "the training there has other settings or data (train.seed 1 -> 5); join it with" in refused(
        "--set", "train.seed=5"
    )
