"""Kill learners at random, and check that each batch is trained once an epoch.

    benchmarks/bench.py restarts FEATURES TOKENIZER WORK [--strategies NAME,...] [--seed N]
                                 [--num-kills N] [--num-learners N] [--config FILE ...] [--set KEY=VALUE ...]

Runs `torchrun --max-restarts` of `asrtool train` with emulated compute, once a strategy. Each time a random subset of
the learners, often all, gets SIGKILL while it starts or trains. Exits with 1 if a run fails, hangs, has no train.json,
or has lost or repeated a batch; its log is WORK/STRATEGY.log.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from asrtool.settings.toml_files import load_config

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("tests", "tests/unit/train")]
from learners import batches_planned, batches_trained, learners_of

STRATEGIES = "adpsgd-random,adpsgd-fixed,allreduce,adpsgd-d1,h-adpsgd,bmuf,ps-async,ps-sync,hogwild"
TORCHRUN, ASRTOOL = (Path(sys.executable).with_name(name) for name in ("torchrun", "asrtool"))
SETS = (
    "distributed.h-adpsgd.node_size=2",
    "distributed.bmuf.block_steps=4",
    "distributed.ps-async.num_servers=2",
    "distributed.ps-sync.num_servers=2",
)
START_S, TRAIN_S = 12.0, 3.0  # a kill comes so long after a start at most, or so long after a step was recorded
HANGS_S = 150.0  # without a step, or at the end: longer than a start on a busy machine, and than a missing heartbeat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("features", "tokenizer", "work"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--strategies", default=STRATEGIES)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--num-kills", type=int, default=8, help="a run")
    parser.add_argument("--num-learners", type=int, default=4)
    parser.add_argument("--compute-ms", type=float, default=60)
    parser.add_argument("--config", dest="configs", action="append", type=Path, default=[], metavar="FILE")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    config = load_config(options.configs, options.sets)
    expected = batches_planned(options.features, options.tokenizer, config)
    faults = {name: fault for name in options.strategies.split(",") if (fault := run(name, options, expected))}
    sys.exit(1 if faults else 0)


def run(strategy: str, options: argparse.Namespace, expected: Counter[tuple[int, int]]) -> str:
    """A training whose learners are killed; what is wrong with it, or nothing."""
    out, log = options.work / strategy, options.work / f"{strategy}.log"
    shutil.rmtree(out, ignore_errors=True)
    options.work.mkdir(parents=True, exist_ok=True)
    draw = random.Random(f"{options.seed} {strategy}")
    begin = time.monotonic()
    with (
        open(log, "w") as file,
        subprocess.Popen(command(strategy, out, options), stdout=file, stderr=file) as launcher,
    ):
        killed = [kill_some(launcher, out, options.num_learners, draw) for _ in range(options.num_kills)]
        hangs = not ends(launcher, out)
        if hangs:
            for process in [*learners_of(out).values(), launcher.pid]:
                kill(process)
    found = batches_trained(out)
    fault = "hangs" if hangs else f"exit code {launcher.returncode}" if launcher.returncode else ""
    fault = fault or ("" if (out / "train.json").exists() else "no train.json")
    fault = fault or (
        "" if found == expected else f"lost {sorted(expected - found)}, repeated {sorted(found - expected)}"
    )
    print(
        f"{strategy:14} {sum(map(bool, killed))} kills of {sum(killed)} learners, {found.total()} batches, "
        f"{time.monotonic() - begin:.0f} s: {fault or 'each batch once'}",
        flush=True,
    )
    return fault


def command(strategy: str, out: Path, options: argparse.Namespace) -> list[str]:
    launch = [TORCHRUN, "--standalone", "--nproc-per-node", options.num_learners]
    launch += ["--max-restarts", 10 * options.num_kills]
    train = [ASRTOOL, "train", options.features, options.tokenizer, out, "--compute-ms", options.compute_ms]
    configs = [word for path in options.configs for word in ("--config", path)]
    sets = [word for text in (*SETS, *options.sets) for word in ("--set", text)]
    return [str(word) for word in [*launch, "--no-python", *train, "--strategy", strategy, *configs, *sets]]


def kill_some(launcher: subprocess.Popen[bytes], out: Path, num_learners: int, draw: random.Random) -> int:
    """Kill learners at a random moment of the training; return their number."""
    if draw.random() < 0.7:
        before = num_bytes(out)
        wait(launcher, HANGS_S, lambda: num_bytes(out) > before)
        limit_s = TRAIN_S
    else:
        wait(launcher, HANGS_S, lambda: bool(learners_of(out)))
        limit_s = START_S
    wait(launcher, draw.uniform(0, limit_s))
    learners = learners_of(out)
    chosen = draw.sample(range(num_learners), draw.randint(1, num_learners))
    return sum(kill(learners[rank]) for rank in chosen if rank in learners)


def wait(launcher: subprocess.Popen[bytes], seconds: float, done: Callable[[], bool] = lambda: False) -> None:
    """Wait for this time, or until `done` or the launcher has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and launcher.poll() is None and not done():
        time.sleep(0.01)


def ends(launcher: subprocess.Popen[bytes], out: Path) -> bool:
    """Test if the launcher ends; it hangs if no learner records a step for HANGS_S."""
    before, since = num_bytes(out), time.monotonic()
    while launcher.poll() is None and time.monotonic() < since + HANGS_S:
        time.sleep(0.05)
        if num_bytes(out) != before:
            before, since = num_bytes(out), time.monotonic()
    return launcher.poll() is not None


def kill(process: int) -> bool:
    """Send SIGKILL; return False if the process does not exist."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
        return True
    return False


def num_bytes(out: Path) -> int:
    """Recorded so far; less after a restart, which drops what no checkpoint has."""
    return sum(path.stat().st_size for path in (out / "learners").glob("*.jsonl"))


if __name__ == "__main__":
    main()
