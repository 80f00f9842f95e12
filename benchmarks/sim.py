"""Predicted against measured throughput of every strategy: `asrtool train` with emulated compute, and the simulator.

    .venv/bin/python benchmarks/sim.py EXP [--learners 2 4 8] [--only NAME ...] [--repeats 1] [--keep FOLDER]

EXP is what a demo leaves. The simulator is calibrated (`asrtool simulate --from`) by a run of one learner and one of
four equal learners by the same strategy, the fewest of which two super-learners exchange; so these are in the sample,
and all else is not.
Throughput is steps a second of all learners from when the last one begins its first step to the end of the last step.
With --repeats all of it is done so often, one round after another, and medians are compared: how fast memory is copied
changes from minute to minute on a shared machine, and with it what servers and sums take.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from asrtool.predict.simulate.calibrate import settings_of
from asrtool.predict.simulate.scenario import load_scenario
from asrtool.predict.simulate.simulate import simulate
from asrtool.report.training import read_training

STRATEGIES = (
    "none", "adpsgd-fixed", "adpsgd-random", "adpsgd-pairs", "adpsgd-d1", "h-adpsgd", "bmuf", "allreduce", "ps-async",
    "ps-sync", "hogwild",
)  # fmt: skip
COMPUTE_MS = 100
SLOW = "0:10"
NODE_SIZE = 2  # of h-adpsgd
CALIBRATED_BY = 4  # equal learners
WITHIN = 0.10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exp", type=Path, help="work directory of a demo")
    parser.add_argument("--learners", type=int, nargs="+", default=[2, 4, 8], metavar="N")
    parser.add_argument("--only", nargs="+", default=STRATEGIES, choices=STRATEGIES, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where trainings are kept; those that are there are not run again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = options.keep or Path(folder)
        rounds = [Bench(options.exp, kept / str(n) if n else kept) for n in range(options.repeats)]
        print_table(rounds, options.only, options.learners)


def print_table(rounds: Sequence[Bench], strategies: Sequence[str], numbers: Sequence[int]) -> None:
    """A line a case with medians over the rounds, all measurements, then how many are within WITHIN."""
    print("| strategy | learners | | measured steps/s | predicted | error | all |\n|---|---|---|---|---|---|---|")
    errors = []
    for name in strategies:
        cases = [(number, slow) for number in numbers for slow in ((), (SLOW,))]
        found = [[bench.compare(name, *case) for case in cases] for bench in rounds]
        for (number, slow), pairs in zip(cases, zip(*found, strict=True), strict=True):
            measured, predicted = (statistics.median(values) for values in zip(*pairs, strict=True))
            errors.append(predicted / measured - 1)
            what = f"learner {slow[0]}" if slow else "equal"
            cells = [name, number, what, f"{measured:.2f}", f"{predicted:.2f}", f"{100 * errors[-1]:+.1f} %"]
            cells.append(", ".join(f"{one:.2f} ({other:.2f})" for one, other in pairs))
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    num_within = sum(abs(error) <= WITHIN for error in errors)
    median = statistics.median(map(abs, errors))
    print(f"\n{num_within} of {len(errors)} within {100 * WITHIN:g} %; median of the errors {100 * median:.1f} %")


class Bench:
    """Trainings of one model and set, each in a folder of its name."""

    def __init__(self, exp: Path, folder: Path) -> None:
        self.exp = exp
        self.folder = folder

    def compare(self, name: str, number: int, slow: Sequence[str]) -> tuple[float, float]:
        """Steps a second, measured and predicted."""
        return speed(self.train(name, number, slow)), self.predict(name, number, slow)

    def train(self, name: str, number: int, slow: Sequence[str]) -> Path:
        """The folder of a training, which is run unless it is there."""
        out = self.folder / "-".join([name, str(number), *(["slow"] if slow else [])])
        if (out / "train.json").exists():
            return out
        settings = [
            f"distributed.h-adpsgd.node_size={min(NODE_SIZE, number)}",
            "train.batch_s=40",  # few steps, of which one of a slow learner takes a second
            "train.num_epochs=1",
            "train.save_every_steps=0",
        ]
        options = ["--strategy", name, "--num-learners", str(number), "--compute-ms", str(COMPUTE_MS)]
        options += [word for one in slow for word in ("--slow", one)]
        options += [word for setting in settings for word in ("--set", setting)]
        asrtool, config = Path(sys.executable).with_name("asrtool"), self.exp / "config" / "train.toml"
        command = [asrtool, "train", self.exp / "features", self.exp / "tokenizer", out, "--config", config, *options]
        trained = subprocess.run(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        if trained.returncode:
            raise SystemExit(trained.stderr)
        return out

    def predict(self, name: str, number: int, slow: Sequence[str]) -> float:
        """Steps a second of all learners, by what one learner and four equal ones have shown."""
        alone, four = self.train("single", 1, ()), self.train(name, CALIBRATED_BY, ())
        steps = read_training(self.train(name, number, slow)).num_steps
        settings = [
            *settings_of([four, alone]),
            f"job.num_samples={steps}",
            "job.batch=1",
            "job.num_epochs=1",
            "saving.checkpoint_s=0",
            "network.learners_per_node=0",
            f"distributed.h-adpsgd.node_size={min(NODE_SIZE, number)}",
            f"distributed.strategy={name}",
            f"slow.learners={','.join(slow)}",
        ]
        scenario = load_scenario([], settings)
        return steps / simulate(scenario, scenario.distributed.strategy[0], number).seconds


def speed(train: Path) -> float:
    """Steps a second of all learners, from the start of the last one to the last step."""
    run = read_training(train)
    begin = max(float(steps["begin"][0]) for steps in run.learners.values())
    ends = (steps["begin"] + steps["compute_s"] + steps["comm_s"] + steps["wait_s"] for steps in run.learners.values())
    return run.num_steps / (max(float(end[-1]) for end in ends) - begin)


if __name__ == "__main__":
    main()
