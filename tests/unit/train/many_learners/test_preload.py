"""Learners are forked from a launcher that has loaded what they need, has one thread, and has left CUDA alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from asrtool.settings.toml_files import load_config
from asrtool.train.run import count_learners

pytestmark = pytest.mark.slow

# Prints which modules are loaded, how many threads a process has as it forks, and if the launcher asks CUDA for GPUs.
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
NUM_LEARNERS = 3


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
@pytest.mark.parametrize(
    ("strategy", "module", "num_forks", "num_compilers"),
    [("adpsgd-fixed", "gossip", 2 * NUM_LEARNERS, 0), ("allreduce", "allreduce", NUM_LEARNERS, 1)],
)
def test_learners_load_nothing_costly_and_nothing_from_the_current_directory(
    toy: Path, toy_config: Path, tmp_path: Path, strategy: str, module: str, num_forks: int, num_compilers: int
) -> None:
    """Also where learners have supervisors, which fork as well, and where torch loads its compiler."""
    (tmp_path / "torch.py").write_text("raise SystemExit('loaded from the current directory')")
    train = [toy / "features", toy / "tokenizer", tmp_path / "train", "--config", toy_config]
    words = ["train", *map(str, train), "--num-learners", str(NUM_LEARNERS), "--strategy", strategy]
    words += ["--set", "train.num_epochs=1"]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *words],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
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


def test_there_is_one_learner_a_gpu_else_one_a_core() -> None:
    distributed = load_config([], ["distributed.strategy=bmuf"]).distributed
    assert count_learners(distributed) == (torch.cuda.device_count() or os.cpu_count())
