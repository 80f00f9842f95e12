"""Compare predicted with measured throughput of every strategy.

    benchmarks/bench.py sim [--learners 2 4 8] [--only NAME ...] [--repeats 1] [--keep FOLDER] [--set KEY=VALUE]
                            [--hosts [--delay-ms 20] [--loss 0.01] [--mbit 100]]

Measured is `asrtool train` with emulated steps. `asrtool simulate --from` calibrates the simulator by a run of one
learner and one of four equal learners with the same strategy, so four equal learners are in the sample. Throughput is
steps a second of all learners, from the first step of the last learner to the end of the last step. `--repeats`
compares medians of several rounds, because the speed of memory changes within minutes on a shared machine. Beside a
figure is its fraction of what as many single learners do.

With `--hosts` two learners each are on a host of their own, a network namespace, by torchrun, and the straggler is a
host. The four learners that calibrate are on two of these hosts.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from switch import Link, switched_hosts
from trainings import LEARNERS_PER_HOST, Trainings, end, records

from asrtool.predict.simulate.calibrate import settings_of
from asrtool.predict.simulate.scenario import load_scenario
from asrtool.predict.simulate.simulate import simulate

STRATEGIES = (
    "none", "adpsgd-fixed", "adpsgd-random", "adpsgd-pairs", "adpsgd-d1", "h-adpsgd", "bmuf", "allreduce", "ps-async",
    "ps-sync", "hogwild",
)  # fmt: skip
COMPUTE_MS = 100
SLOW_RATE = 1 / 10  # of a straggler: a learner, or each of a host
NODE_SIZE = 2  # of h-adpsgd
CALIBRATED_BY = 4  # equal learners, the fewest of which two super-learners exchange
WITHIN = 0.10
SETTINGS = ("train.batch_s=40", "train.num_epochs=1", "train.save_every_steps=0")  # few steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exp", type=Path, help="work folder of a demo")
    parser.add_argument("--learners", type=int, nargs="+", default=[2, 4, 8], metavar="N")
    parser.add_argument("--only", nargs="+", choices=STRATEGIES, metavar="NAME")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the trainings")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--hosts", action="store_true", help="two learners a host; needs root")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="of the hosts' links, one way")
    parser.add_argument("--loss", type=float, default=0.0, help="fraction of frames")
    parser.add_argument("--mbit", type=float, default=0.0, help="a second that a host sends at most; 0 is no limit")
    parser.add_argument("--keep", type=Path, help="folder of trainings; finished ones are kept")
    options = parser.parse_args()
    num_hosts = max(options.learners) // LEARNERS_PER_HOST if options.hosts else 0
    link, settings = Link(options.delay_ms, options.loss, options.mbit), (*SETTINGS, *options.set)
    slow_ranks = range(LEARNERS_PER_HOST if options.hosts else 1)
    with contextlib.ExitStack() as stack:
        kept = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(switched_hosts(num_hosts, link)) if num_hosts else []
        rounds = [Trainings(options.exp, kept / str(n), settings, hosts) for n in range(options.repeats)]
        print("| strategy | learners | | measured steps/s | of attainable | predicted | error | all |")
        print("|---|---|---|---|---|---|---|---|")
        errors = []
        one_machine = ["hogwild"] if hosts else []  # learners of hogwild share memory
        for name in options.only or [name for name in STRATEGIES if name not in one_machine]:
            for number in options.learners:
                for slow in ((), slow_ranks):
                    found = [compare(trainings, name, number, slow) for trainings in rounds]
                    measured, predicted, attainable = map(statistics.median, zip(*found, strict=True))
                    errors.append(predicted / measured - 1)
                    cells = [name, number, "straggler" if slow else "equal", f"{measured:.2f}"]
                    cells += [f"{measured / attainable:.2f}", f"{predicted:.2f}", f"{100 * errors[-1]:+.1f} %"]
                    cells.append(", ".join(f"{one:.2f} ({other:.2f})" for one, other, _ in found))
                    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    num_within = sum(abs(error) <= WITHIN for error in errors)
    median = statistics.median(map(abs, errors))
    print(f"\n{num_within} of {len(errors)} within {100 * WITHIN:g} %; median of the errors {100 * median:.1f} %")


def compare(trainings: Trainings, name: str, number: int, slow: Sequence[int]) -> tuple[float, float, float]:
    """Return steps a second: measured, predicted, and of as many single learners."""
    four, alone = train(trainings, name, CALIBRATED_BY), train(trainings, "single", 1)
    learners = records(train(trainings, name, number, slow))
    num_steps = sum(map(len, learners))
    begin, last = max(steps[0]["begin"] for steps in learners), max(end(steps[-1]) for steps in learners)
    settings = [
        "network.learners_per_node=0",  # all are on this machine, and share its memory and cores
        *settings_of([four, alone]),  # a host that waits for the store is a node of its own
        f"job.num_samples={num_steps}",
        "job.batch=1",
        "job.num_epochs=1",
        "saving.checkpoint_s=0",
        f"distributed.h-adpsgd.node_size={min(NODE_SIZE, number)}",
        f"distributed.strategy={name}",
        f"slow.learners={','.join(slowness(slow))}",
    ]
    scenario = load_scenario([], settings)
    predicted = num_steps / simulate(scenario, scenario.distributed.strategy[0], number).seconds
    (single,) = records(alone)
    attainable = len(single) / (end(single[-1]) - single[0]["begin"]) * (number - (1 - SLOW_RATE) * len(slow))
    return num_steps / (last - begin), predicted, attainable


def train(trainings: Trainings, name: str, number: int, slow: Sequence[int] = ()) -> Path:
    options = ["--compute-ms", str(COMPUTE_MS), *(word for one in slowness(slow) for word in ("--slow", one))]
    return trainings.train(name, number, *options, sets=(f"distributed.h-adpsgd.node_size={min(NODE_SIZE, number)}",))


def slowness(ranks: Sequence[int]) -> list[str]:
    """Return RANK:FACTOR of stragglers."""
    return [f"{rank}:{1 / SLOW_RATE:g}" for rank in ranks]


if __name__ == "__main__":
    main()
