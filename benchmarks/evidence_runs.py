"""Runs of `asrtool train` that evidence is drawn from, on what a demo leaves; one that is finished is not run again."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPUTE_MS = 100  # emulated, of a step
SLOW = 10  # times, learner 0
SETTINGS = ("train.batch_s=10", "train.num_epochs=1", "distributed.h-adpsgd.node_size=2")
LATE = 0.5  # of a training, behind which learners are as far apart as they stay

Record = Mapping[str, Any]  # a line of learners/R.jsonl


@dataclass(frozen=True)
class Runs:
    """`exp` is the work folder of a demo; trainings are below `work`."""

    exp: Path
    work: Path

    def train(self, strategy: str, num_learners: int, seed: int, *options: str, sets: Sequence[str] = ()) -> Path:
        """The OUT of a training of the demo's model and data, with its own compute."""
        name = "-".join([strategy, str(num_learners), str(seed), *options, *sets]).translate({58: "_", 47: "_"})
        out = self.work / name
        if not (out / "train.json").exists():
            shutil.rmtree(out, ignore_errors=True)
            words = ["--strategy", strategy, "--num-learners", str(num_learners), *options]
            words += ["--config", str(self.exp / "config" / "train.toml")]
            for setting in (*SETTINGS, f"train.seed={seed}", *sets):
                words += ["--set", setting]
            asrtool("train", str(self.exp / "features"), str(self.exp / "tokenizer"), str(out), *words)
        return out

    def emulated(self, strategy: str, num_learners: int, seed: int, slow: bool = False) -> Path:
        """The same with a wait in the place of compute."""
        options = ["--compute-ms", str(COMPUTE_MS), *(["--slow", f"0:{SLOW}"] if slow else [])]
        sets = ("train.save_every_steps=0",) if strategy == "none" else ()
        return self.train(strategy, num_learners, seed, *options, sets=sets)

    def speed(self, strategy: str, num_learners: int, seed: int, slow: bool = False) -> float:
        """Steps a second of all learners, with emulated compute, from the first step that all have begun to the end.

        The end is that of the last evaluation and checkpoint; of `none`, where the first learner has no batch left.
        """
        out = self.emulated(strategy, num_learners, seed, slow)
        learners = records(out)
        begin = max(steps[0]["begin"] for steps in learners)
        end = (out / "train.json").stat().st_mtime
        if strategy == "none":
            end = min(_end(steps[-1]) for steps in learners)
        return sum(begin < _end(step) <= end for steps in learners for step in steps) / (end - begin)


def asrtool(*words: str) -> None:
    """A command, quietly; ends this one where it fails."""
    done = subprocess.run([Path(sys.executable).with_name("asrtool"), *words], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def records(out: Path) -> list[list[Record]]:
    """The steps of each learner."""
    paths = sorted(out.glob("learners/*.jsonl"), key=lambda path: int(path.stem))
    return [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in paths]


def distance(out: Path) -> float:
    """The mean of the consensus distances behind LATE of a training."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [(line["step"], line["consensus_distance"]) for line in lines if line["kind"] == "learners"]
    return statistics.fmean(value for step, value in found if step >= LATE * found[-1][0])


def final(out: Path) -> dict[str, Any]:
    """What train.json says."""
    found: dict[str, Any] = json.loads((out / "train.json").read_text(encoding="utf-8"))
    return found


def spread(values: Iterable[float], digits: int = 3) -> str:
    """Mean, least and greatest, as they stand in the page."""
    found = list(values)
    return f"{statistics.fmean(found):.{digits}f} ({min(found):.{digits}f}, {max(found):.{digits}f})"


def _end(step: Record) -> float:
    return float(step["begin"] + step["compute_s"] + step["comm_s"] + step["wait_s"])
