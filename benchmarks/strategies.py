"""Word error rates of the mini recipe by every strategy, with as many utterances trained as by one learner.

    .venv/bin/python benchmarks/strategies.py WORK [--strategies NAME,...] [--set KEY=VALUE ...]

Four learners have a quarter of the recipe's batch each. Stages before training run once. A strategy that is finished in
WORK is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from asrtool.config import STRATEGIES

ASRTOOL = Path(sys.executable).with_name("asrtool")
# Of the recipe otherwise. A mean over all learners takes more; gradients on weights of three steps ago take less.
PEAK_LR = {"adpsgd-d1": 0.005, "ps-async": 0.0015}
METHODS = ("greedy", "beam", "graph")
QUARTER = ("train.batch_s=12.5", "dist.num_learners=4", "dist.node_size=2", "dist.num_servers=2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    base = options.work / "base"
    run("--work", base, "--stop-stage", "graph")
    print(f"{'strategy':14} {'loss on dev':>11} {'seconds':>8}", *(f"{method:>7}" for method in METHODS), flush=True)
    for name in options.strategies.split(","):
        work = options.work / name
        if not work.exists():
            shutil.copytree(base, work, copy_function=os.link)
        settings = [f"train.strategy={name}", *(QUARTER if name != "single" else ())]
        settings += [f"train.peak_lr={PEAK_LR[name]}"] if name in PEAK_LR else []
        settings += options.sets
        run("--work", work, "--stop-stage", "score", *(word for text in settings for word in ("--set", text)))
        training = json.loads((work / "train" / "train.json").read_text(encoding="utf-8"))
        rates = [f"{word_error_rate(work, method):7.2f}" for method in METHODS]
        print(f"{name:14} {training['dev_loss']:11.3f} {training['seconds']:8.0f}", *rates, flush=True)


def run(*words: object) -> None:
    """The recipe, quietly."""
    done = subprocess.run([ASRTOOL, "run", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def word_error_rate(work: Path, method: str) -> float:
    """In percent, on the test set."""
    score = json.loads((work / "score" / "test" / method / "score.json").read_text(encoding="utf-8"))
    return 100 * float(score["overall"]["err"]) / float(score["overall"]["words"])


if __name__ == "__main__":
    main()
