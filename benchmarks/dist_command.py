"""Strategies as people run them: `asrtool train` with its queue, checkpoints and evaluation, and emulated compute.

Figures are fractions of what the same learners do without communication and checkpoints (`none`) in the same round.
Start-up is left out: the time of a training begins when the last learner begins its first step. It ends with
train.json, after the last evaluation and checkpoint; that of `none` ends when the first learner has no batch left. The
evaluation between its epochs, by one learner beside its training, is in it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STRATEGIES = (
    "none", "adpsgd-fixed", "adpsgd-random", "adpsgd-pairs", "h-adpsgd", "ps-async", "allreduce", "adpsgd-d1", "bmuf",
)  # fmt: skip
SETTINGS = ("train.batch_s=10", "train.num_epochs=2", "distributed.h-adpsgd.node_size=2")
ALONE = ("train.save_every_steps=0",)  # of none
SLOWNESS = 10


def measure_command(exp: Path, num_learners: int, compute_ms: float, rounds: int, only: Sequence[str] | None) -> None:
    """Print a table for equal learners, and one with the first SLOWNESS times slower; `exp` is what a demo leaves."""
    names = [name for name in STRATEGIES if not only or name in (*only, "none")]
    for slow in ((), ("--slow", f"0:{SLOWNESS}")):
        print(f"\n{num_learners} learners, {compute_ms:g} ms a step, {' '.join(slow) or 'all equal'}")
        speeds: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                speeds[name].append(_speed(exp, name, num_learners, compute_ms, slow))
        speed_alone = 1000 / compute_ms
        attainable = speed_alone * (num_learners - (1 - 1 / SLOWNESS if slow else 0))
        print(f"{'strategy':16} {'of none':>8} {'least':>7} {'greatest':>8} {'of the sum of 1/step':>21}")
        for name in names:
            of_none = [own / none for own, none in zip(speeds[name], speeds["none"], strict=True)]
            of_sum = statistics.median(speeds[name]) / attainable
            print(f"{name:16} {statistics.median(of_none):8.3f} {min(of_none):7.3f} {max(of_none):8.3f} {of_sum:21.3f}")


def _speed(exp: Path, name: str, num_learners: int, compute_ms: float, slow: Sequence[str]) -> float:
    """Steps a second of all learners."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "train"
        settings = [*SETTINGS, *(ALONE if name == "none" else ())]
        options = ["--strategy", name, "--num-learners", str(num_learners), "--compute-ms", str(compute_ms), *slow]
        options += ["--config", str(exp / "config" / "train.toml")]
        options += [word for setting in settings for word in ("--set", setting)]
        asrtool = Path(sys.executable).with_name("asrtool")
        command = [asrtool, "train", exp / "features", exp / "tokenizer", out, *options]
        trained = subprocess.run(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        if trained.returncode:
            raise SystemExit(trained.stderr)
        learners = [list(map(json.loads, path.read_text().splitlines())) for path in out.glob("learners/*.jsonl")]
        begin = max(steps[0]["begin"] for steps in learners)
        if name == "none":
            end = min(map(_end, (steps[-1] for steps in learners)))
        else:
            end = (out / "train.json").stat().st_mtime
        return sum(begin < _end(step) <= end for steps in learners for step in steps) / (end - begin)


def _end(step: Mapping[str, Any]) -> float:
    """When it ended, in seconds since 1970."""
    return float(step["begin"] + step["compute_s"] + step["comm_s"] + step["wait_s"])
