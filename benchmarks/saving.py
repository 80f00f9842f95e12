"""What a training of 43 million parameters loses by saving a checkpoint each minute.

    .venv/bin/python benchmarks/saving.py EXP [--rounds 2] [--learners 2] [--every 1]

`asrtool train` by averaged gradients, on what a demo leaves in EXP, with emulated compute of 0.5 s a step; saving each
minute, or --every so many, and not at all take turns. The time is that from the first step to the last one. `above the
median` is by how much the mean step is longer than the median one: what a few long steps cost.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SETTINGS = ("model.lstm.num_layers=6", "model.lstm.hidden_size=576", "train.batch_s=20", "train.num_epochs=1")
COMPUTE_MS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exp", type=Path, metavar="EXP", help="a work folder with features and a tokenizer")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--every", type=float, default=1, metavar="MINUTES", help="from one checkpoint to the next")
    options = parser.parse_args()
    lost, above = [], []
    for _ in range(options.rounds):
        without, saving = (steps_s(options.exp, options.learners, minutes) for minutes in (0, options.every))
        lost.append(1 - statistics.mean(without) / statistics.mean(saving))
        above.append(above_median(saving) - above_median(without))
        print(f"{statistics.mean(without):.4f} s a step, saving {statistics.mean(saving):.4f}, ", end="")
        print(f"lost {lost[-1]:.2%}, above the median {above[-1]:.2%}", flush=True)
    print(f"lost: median {statistics.median(lost):.2%}, above the median {statistics.median(above):.2%}")


def above_median(steps: list[float]) -> float:
    """By which fraction the mean is above the median."""
    return statistics.mean(steps) / statistics.median(steps) - 1


def steps_s(exp: Path, num_learners: int, minutes: float) -> list[float]:
    """Seconds of each step of the first learner."""
    strategy = "allreduce" if num_learners > 1 else "single"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "train"
        settings = [*SETTINGS, "train.save_every_steps=0", f"train.save_every_minutes={minutes}"]
        command = [Path(sys.executable).with_name("asrtool"), "train", exp / "features", exp / "tokenizer", out]
        command += ["--strategy", strategy, "--num-learners", num_learners, "--compute-ms", COMPUTE_MS]
        command += [word for setting in settings for word in ("--set", setting)]
        trained = subprocess.run(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        if trained.returncode:
            raise SystemExit(trained.stderr)
        steps = list(map(json.loads, (out / "learners/0.jsonl").read_text().splitlines()))
        parameters = json.loads((out / "train.json").read_text())["num_parameters"]
        print(f"{parameters / 1e6:.1f} M parameters, {len(steps)} steps", flush=True)
        return [later["begin"] - step["begin"] for step, later in itertools.pairwise(steps)]


if __name__ == "__main__":
    main()
