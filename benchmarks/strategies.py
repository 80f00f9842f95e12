"""Word error rates of the mini recipe by every strategy, with as many utterances trained as by one learner.

    .venv/bin/python benchmarks/strategies.py WORK [--strategies NAME,...] [--rates X,...] [--set KEY=VALUE ...]

Four learners have a quarter of the recipe's batch each. Every strategy is trained with each of the rates, and what has
the lowest loss on dev at the end is decoded. Stages before training run once, and what is finished in WORK is not run
again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from asrtool.settings import registry

ASRTOOL = Path(sys.executable).with_name("asrtool")
RATES = "0.0015,0.003,0.006,0.012"  # train.peak_lr; the second is the recipe's
METHODS = ("greedy", "beam", "graph")
QUARTER = (
    "train.batch_s=12.5", "distributed.num_learners=4", "distributed.h-adpsgd.node_size=2",
    "distributed.ps-async.num_servers=2",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--strategies", default=",".join(registry.names("strategy")))
    parser.add_argument("--rates", default=RATES)
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    run("--work", options.work / "base", "--stop-stage", "graph")
    rates = [float(rate) for rate in options.rates.split(",")]
    columns = [f"dev at {rate}" for rate in rates]
    print(" ".join([f"{'strategy':14}", *columns, "seconds", *(f"{method:>7}" for method in METHODS)]), flush=True)
    for name in options.strategies.split(","):
        trained = {rate: train(name, rate, options) for rate in rates}
        losses = {rate: float(training["dev_loss"]) for rate, training in trained.items()}
        best = min(losses, key=lambda rate: losses[rate])
        run(*recipe(name, best, options), "--stop-stage", "score")
        cells = [f"{losses[rate]:{len(column)}.3f}" for rate, column in zip(rates, columns, strict=True)]
        cells.append(f"{trained[best]['seconds']:7.0f}")
        cells += [f"{word_error_rate(folder(name, best, options), method):7.2f}" for method in METHODS]
        print(" ".join([f"{name:14}", *cells]), flush=True)


def train(name: str, rate: float, options: argparse.Namespace) -> dict[str, Any]:
    """What train.json says of the training."""
    work = folder(name, rate, options)
    if not work.exists():
        shutil.copytree(options.work / "base", work, copy_function=os.link)
    run(*recipe(name, rate, options), "--stop-stage", "train")
    training: dict[str, Any] = json.loads((work / "train" / "train.json").read_text(encoding="utf-8"))
    return training


def folder(name: str, rate: float, options: argparse.Namespace) -> Path:
    return Path(options.work, f"{name}-{rate}")


def recipe(name: str, rate: float, options: argparse.Namespace) -> list[str]:
    """The work directory and settings of a training."""
    settings = [f"distributed.strategy={name}", f"train.peak_lr={rate}", *(QUARTER if name != "single" else ())]
    sets = [word for text in [*settings, *options.sets] for word in ("--set", text)]
    return ["--work", str(folder(name, rate, options)), *sets]


def run(*words: object) -> None:
    """The recipe, quietly."""
    done = subprocess.run([ASRTOOL, "run", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def word_error_rate(work: Path, method: str) -> float:
    """In percent, on Hub5'00 or what stands in for it."""
    score = json.loads((work / "score" / "hub5" / method / "score.json").read_text(encoding="utf-8"))
    return 100 * float(score["overall"]["err"]) / float(score["overall"]["words"])


if __name__ == "__main__":
    main()
