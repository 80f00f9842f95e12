"""Learners that torchrun starts again after some were killed train each batch once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from learners import MANY_BATCHES

RESTARTS = Path(__file__).parents[3] / "benchmarks" / "restarts.py"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for learners in /proc")
@pytest.mark.parametrize("strategy", ["adpsgd-random", "ps-async", "hogwild"])
def test_learners_killed_at_random_moments_train_each_batch_once(toy: Path, tmp_path: Path, strategy: str) -> None:
    """A short form of the benchmark, of a seed of its own at each call."""
    config = tmp_path / "toy.toml"
    config.write_text(MANY_BATCHES.replace("num_epochs = 3", "num_epochs = 12"))
    paths = [toy / "features", toy / "tokenizer", tmp_path / "work", "--config", config]
    command = [sys.executable, RESTARTS, *paths, "--strategies", strategy, "--num-kills", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each batch once" in done.stdout
