"""Learners that torchrun starts again after some were killed, or a machine was lost, train each batch once."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from learners import MANY_BATCHES, batches_trained, planned, processes_of, saved_learners
from rendezvous import ENDED_S, rendezvous_address, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for learners in /proc"),
]
RESTARTS = Path(__file__).parents[4] / "benchmarks" / "restarts.py"


@pytest.fixture
def restarts() -> ModuleType:
    """Return the benchmark."""
    spec = importlib.util.spec_from_file_location("restarts", RESTARTS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("strategy", "num"), [("adpsgd-random", 3), ("ps-async", 2), ("hogwild", 2)])
def test_learners_killed_at_random_moments_train_each_batch_once(
    strategy: str, num: int, toy: Path, tmp_path: Path, restarts: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """A short form of the benchmark, of a seed of its own at each call."""
    config = tmp_path / "toy.toml"
    config.write_text(MANY_BATCHES.replace("num_epochs = 3", "num_epochs = 12"))
    words = [toy / "features", toy / "tokenizer", tmp_path / "work", "--config", config]
    words += ["--strategies", strategy, "--num-kills", "2", "--num-learners", num]
    monkeypatch.setattr(sys, "argv", ["restarts.py", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        restarts.main()
    printed = capsys.readouterr().out
    assert end.value.code == 0, printed + (tmp_path / "work" / f"{strategy}.log").read_text()
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


def test_when_a_machine_is_lost_those_left_resume_with_their_optimizer(
    start_agent: Callable[[str], subprocess.Popen[bytes]], toy: Path, tmp_path: Path
) -> None:
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
