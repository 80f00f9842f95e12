"""Utterances and seconds to a loss on dev, by strategy and global batch, on the mini corpus.

    .venv/bin/python benchmarks/convergence.py WORK [--strategies NAME,...] [--scales 1,4,16,64] [--rate 0.1]

Each training has the same learners and epochs. The learning rate is scaled with the batch (linear scaling) and warmed
up along a line over the first quarter; then it stays. A training that is finished in WORK is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

ASRTOOL = Path(sys.executable).with_name("asrtool")
BATCH_S = 25.0  # of all learners together, at scale 1
SETTINGS = {
    "model.lstm.num_layers": 2,
    "model.lstm.hidden_size": 96,
    "specaugment.num_time_masks": 1,
    "specaugment.num_freq_masks": 1,
    "train.optimizer": "sgd",
    "train.sgd.weight_decay": 0,
    "train.schedule": "halving",
    "train.halving.warmup_fraction": 0.25,
    "train.halving.hold_fraction": 0.75,
    "train.save_every_steps": 100_000,
    "train.keep_last": 1,
    "train.num_threads": 1,
    "distributed.bmuf.block_steps": 4,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--strategies", default="allreduce,adpsgd-fixed,adpsgd-random,adpsgd-d1,bmuf")
    parser.add_argument("--scales", default="1,4,16,64")
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate at scale 1")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--learners", type=int, default=4)
    parser.add_argument("--loss", type=float, default=1.0)
    options = parser.parse_args()
    run("run", "--work", options.work, "--stop-stage", "3", "--set", "features.speeds=1.0")
    print(f"{'strategy':14} {'batch':>6} {'utterances':>11} {'seconds':>8} {'lowest loss':>12}", flush=True)
    for scale in map(int, options.scales.split(",")):
        for strategy in options.strategies.split(","):
            out = train(strategy, scale, options)
            reached, lowest = read_losses(out, options.loss)
            found = f"{reached[0]:11.0f} {reached[1]:8.0f}" if reached else f"{'never':>11} {'':>8}"
            print(f"{strategy:14} {scale:5}x {found} {lowest:12.3f}", flush=True)


def train(strategy: str, scale: int, options: argparse.Namespace) -> Path:
    """Where the training lies; one whose loss was no number has no end, but losses up to there."""
    out: Path = options.work / f"{strategy}-{scale}-{options.rate}"
    settings = SETTINGS | {
        "train.batch_s": BATCH_S * scale / options.learners,
        "train.peak_lr": options.rate * scale,
        "train.num_epochs": options.epochs,
    }
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    inputs = (options.work / "features", options.work / "tokenizer", out)
    run("train", *inputs, "--strategy", strategy, "--num-learners", options.learners, *sets, must_end=False)
    return out


def run(*words: object, must_end: bool = True) -> None:
    """An asrtool command, quietly."""
    done = subprocess.run([ASRTOOL, *map(str, words)], capture_output=True, text=True)
    if must_end and done.returncode:
        sys.exit(done.stderr)


def read_losses(out: Path, loss: float) -> tuple[tuple[float, float] | None, float]:
    """Utterances and seconds at which dev reached `loss`, on a line over log loss between epochs; and the lowest."""
    entries = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    clock = {entry["samples"]: entry["seconds"] for entry in entries if entry["kind"] == "train"}
    points = [
        (entry["samples"], clock[max(samples for samples in clock if samples <= entry["samples"])], entry["loss"])
        for entry in entries
        if entry["kind"] == "dev"
    ]
    lowest = min((point[2] for point in points), default=math.inf)
    for before, after in itertools.pairwise(points):
        if before[2] > loss >= after[2]:
            fraction = math.log(before[2] / loss) / math.log(before[2] / after[2])
            return (
                before[0] + fraction * (after[0] - before[0]),
                before[1] + fraction * (after[1] - before[1]),
            ), lowest
    return None, lowest


if __name__ == "__main__":
    main()
