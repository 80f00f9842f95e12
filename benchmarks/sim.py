"""Compare predicted with measured throughput of every strategy.

    benchmarks/bench.py sim [--learners 2 4 8] [--only NAME ...] [--repeats 1] [--keep FOLDER]

Measured is `asrtool train` with emulated steps. `asrtool simulate --from` calibrates the simulator by a run of one
learner and one of four equal learners with the same strategy, so four equal learners are in the sample. Throughput is
steps a second of all learners, from the first step of the last learner to the end of the last step. `--repeats`
compares medians of several rounds, because the speed of memory changes within minutes on a shared machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from trainings import Trainings, end, records

from asrtool.predict.simulate.calibrate import settings_of
from asrtool.predict.simulate.scenario import load_scenario
from asrtool.predict.simulate.simulate import simulate

STRATEGIES = (
    "none", "adpsgd-fixed", "adpsgd-random", "adpsgd-pairs", "adpsgd-d1", "h-adpsgd", "bmuf", "allreduce", "ps-async",
    "ps-sync", "hogwild",
)  # fmt: skip
COMPUTE_MS = 100
SLOW = "0:10"
NODE_SIZE = 2  # of h-adpsgd
CALIBRATED_BY = 4  # equal learners, the fewest of which two super-learners exchange
WITHIN = 0.10
SETTINGS = ("train.batch_s=40", "train.num_epochs=1", "train.save_every_steps=0")  # few steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exp", type=Path, help="work folder of a demo")
    parser.add_argument("--learners", type=int, nargs="+", default=[2, 4, 8], metavar="N")
    parser.add_argument("--only", nargs="+", default=STRATEGIES, choices=STRATEGIES, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder of trainings; finished ones are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = options.keep or Path(folder)
        rounds = [Trainings(options.exp, kept / str(n), SETTINGS) for n in range(options.repeats)]
        print("| strategy | learners | | measured steps/s | predicted | error | all |\n|---|---|---|---|---|---|---|")
        errors = []
        for name in options.only:
            for number in options.learners:
                for slow in ("", SLOW):
                    pairs = [compare(trainings, name, number, slow) for trainings in rounds]
                    measured, predicted = (statistics.median(values) for values in zip(*pairs, strict=True))
                    errors.append(predicted / measured - 1)
                    cells = [name, number, f"learner {slow}" if slow else "equal", f"{measured:.2f}"]
                    cells += [f"{predicted:.2f}", f"{100 * errors[-1]:+.1f} %"]
                    cells.append(", ".join(f"{one:.2f} ({other:.2f})" for one, other in pairs))
                    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    num_within = sum(abs(error) <= WITHIN for error in errors)
    median = statistics.median(map(abs, errors))
    print(f"\n{num_within} of {len(errors)} within {100 * WITHIN:g} %; median of the errors {100 * median:.1f} %")


def compare(trainings: Trainings, name: str, number: int, slow: str) -> tuple[float, float]:
    """Return steps a second of all learners, measured and predicted."""
    four, alone = train(trainings, name, CALIBRATED_BY), train(trainings, "single", 1)
    learners = records(train(trainings, name, number, slow))
    num_steps = sum(map(len, learners))
    begin, last = max(steps[0]["begin"] for steps in learners), max(end(steps[-1]) for steps in learners)
    settings = [
        *settings_of([four, alone]),
        f"job.num_samples={num_steps}",
        "job.batch=1",
        "job.num_epochs=1",
        "saving.checkpoint_s=0",
        "network.learners_per_node=0",
        f"distributed.h-adpsgd.node_size={min(NODE_SIZE, number)}",
        f"distributed.strategy={name}",
        f"slow.learners={slow}",
    ]
    scenario = load_scenario([], settings)
    predicted = num_steps / simulate(scenario, scenario.distributed.strategy[0], number).seconds
    return num_steps / (last - begin), predicted


def train(trainings: Trainings, name: str, number: int, slow: str = "") -> Path:
    options = ["--compute-ms", str(COMPUTE_MS), *(["--slow", slow] if slow else [])]
    return trainings.train(name, number, *options, sets=(f"distributed.h-adpsgd.node_size={min(NODE_SIZE, number)}",))


if __name__ == "__main__":
    main()
