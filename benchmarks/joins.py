"""Kill learners and have others join at random moments of one training, and see whether it ends with each batch once.

    .venv/bin/python benchmarks/joins.py FEATURES TOKENIZER WORK [--strategy NAME] [--seed N] [--num-changes N]
                                         [--undisturbed N] [--factor X] [--config FILE ...] [--set KEY=VALUE ...]

`asrtool train` without a restart. The changes are spread over its batches; each is SIGKILL to a learner, also to one
that is about to join, or `asrtool train --join`. So many learners train at most, and one at least. `--factor` stretches
the computation of all, so that a learner that joins is there before the training has ended. After it so many
undisturbed trainings by the same command are run, and the losses on dev of all are printed. Ends with code 1 where one
ends with an error or hangs, has lost or repeated a batch, or had fewer changes.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from restarts import ASRTOOL, ends, kill, learners_of, num_bytes, planned, trained

NUM_LEARNERS, MAX_LEARNERS = 3, 5
HANGS_S = 150.0
JOINED = "joined as learner"
MARGIN = 0.1  # of the batches, behind the last change


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("features", "tokenizer", "work"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--strategy", default="adpsgd-random")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--num-changes", type=int, default=50)
    parser.add_argument("--undisturbed", type=int, default=3)
    parser.add_argument("--factor", type=float, default=20)
    parser.add_argument("--config", dest="configs", action="append", type=Path, default=[], metavar="FILE")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    options.work.mkdir(parents=True, exist_ok=True)
    expected = planned(options)
    faults = [run("disturbed", options, expected, options.num_changes)] if options.num_changes else []
    faults += [run(f"undisturbed-{number}", options, expected, 0) for number in range(options.undisturbed)]
    sys.exit(any(faults))


@dataclass
class Crowd:
    """The processes of a training."""

    out: Path
    command: list[str]
    factor: float
    draw: random.Random
    files: ExitStack
    joining: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)  # with their logs
    changes: Counter[str] = field(default_factory=Counter)

    def start(self, log: Path, *options: str) -> subprocess.Popen[bytes]:
        file = self.files.enter_context(log.open("wb"))
        return subprocess.Popen([*self.command, *options], stdout=file, stderr=file)

    def slow(self, numbers: range) -> list[str]:
        """Options that stretch the computation of these learners."""
        return [word for number in numbers for word in ("--slow", f"{number}:{self.factor:g}") if self.factor > 1]

    def change(self, launcher: int) -> None:
        """Kill one or have one join: where both can be, the one or the other."""
        of_launcher = learners_of(self.out).values()  # and supervisors whose learner is lost
        began = [process for process in of_launcher if parent_of(process) != launcher]
        joined = [(process, JOINED in log.read_text()) for process, log in self.joining if process.poll() is None]
        num_training = len(began) + sum(trains for _, trains in joined)
        victims = began if num_training > 1 else []
        victims += [learner_of(process.pid) for process, trains in joined if num_training > 1 or not trains]
        if victims and (len(began) + len(joined) >= MAX_LEARNERS or self.draw.random() < 0.5):
            self.changes["kills"] += kill(self.draw.choice(victims))
        else:
            log = self.out.with_name(f"join-{len(self.joining)}.log")
            numbers = range(NUM_LEARNERS, NUM_LEARNERS + len(self.joining) + 1)
            self.joining.append((self.start(log, "--join", *self.slow(numbers)), log))
            self.changes["joins"] += 1

    @property
    def failed(self) -> list[int]:
        """Exit codes of learners that joined and were not killed, but for 0."""
        return [code for process, _ in self.joining if (code := process.wait(HANGS_S)) not in (0, -9)]


def run(name: str, options: argparse.Namespace, expected: Counter[tuple[int, int]], num_changes: int) -> str:
    """A training with so many changes; what is wrong with it, or nothing."""
    out = options.work / name
    shutil.rmtree(out, ignore_errors=True)
    begin = time.monotonic()
    with ExitStack() as files:
        draw = random.Random(f"{options.seed} {name}")
        crowd = Crowd(out, command(out, options), options.factor, draw, files)
        log, begun = options.work / f"{name}.log", crowd.slow(range(NUM_LEARNERS))
        launcher = crowd.start(log, "--num-learners", str(NUM_LEARNERS), *begun)
        for number in range(num_changes):
            share = (number + crowd.draw.random()) / num_changes * (1 - MARGIN)
            if not wait_until(launcher, out, int(share * expected.total())):
                break
            crowd.change(launcher.pid)
        if not ends(launcher, out):
            for process in [*learners_of(out).values(), launcher.pid]:
                kill(process)
            return report(name, crowd, begin, "hangs")
        failed = crowd.failed
    found = trained(out)
    fault = f"exit code {launcher.returncode}" if launcher.returncode else ""
    if not fault and failed:
        fault = f"exit codes {failed} of those that joined"
    if not fault and found != expected:
        fault = f"lost {sorted(expected - found)}, repeated {sorted(found - expected)}"
    if not fault and crowd.changes.total() < num_changes:
        fault = f"only {crowd.changes.total()} changes"
    return report(name, crowd, begin, fault)


def report(name: str, crowd: Crowd, begin: float, fault: str) -> str:
    path = crowd.out / "train.json"
    summary: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    of_members = f"{len(summary.get('joined', ()))} joined, {len(summary.get('lost', ()))} of all were lost"
    losses = [summary.get(key, float("nan")) for key in ("dev_loss", "best_dev_loss")]
    print(
        f"{name:13} {crowd.changes['kills']} kills, {crowd.changes['joins']} joins ({of_members}), "
        f"{trained(crowd.out).total()} batches, {time.monotonic() - begin:.0f} s: {fault or 'each batch once'}; "
        f"loss on dev {losses[0]:.4f}, best {losses[1]:.4f}",
        flush=True,
    )
    return fault


def command(out: Path, options: argparse.Namespace) -> list[str]:
    train = [ASRTOOL, "train", options.features, options.tokenizer, out, "--strategy", options.strategy]
    configs = [word for path in options.configs for word in ("--config", path)]
    sets = [word for text in options.sets for word in ("--set", text)]
    return [str(word) for word in [*train, *configs, *sets]]


def parent_of(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return 0


def learner_of(process: int) -> int:
    """The learner of the supervisor `process`; itself where it has none yet."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        children = []
    return int(children[0]) if children else process


def wait_until(launcher: subprocess.Popen[bytes], out: Path, num_batches: int) -> bool:
    """Until so many are recorded; False where the training ends or hangs before."""
    before, since = -1, time.monotonic()
    while launcher.poll() is None and time.monotonic() < since + HANGS_S:
        if sum(path.read_bytes().count(b"\n") for path in (out / "learners").glob("*.jsonl")) > num_batches:
            return True
        if num_bytes(out) != before:
            before, since = num_bytes(out), time.monotonic()
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    main()
