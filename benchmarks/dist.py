"""Distributed strategies beside other packages, on learners with emulated compute.

    .venv/bin/python benchmarks/dist.py [throughput stragglers hidden scale command] [--rounds 5] [--seconds 3]

Figures are fractions of what the same learners do without communication (`none`), in the same launch and round. A
launch starts the processes once, and the contestants take turns. Medians over the rounds, with least and greatest.
`command` runs `asrtool train` itself, on what `make demo` leaves.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dist_command import measure_command
from dist_contestants import OURS, PEERS
from dist_learner import Case
from dist_scale import measure_scale

LEARNER = Path(__file__).parent / "dist_learner.py"
EXP = Path(__file__).parents[1] / "recipes" / "swbd" / "exp"
# Of those that the slowest learner holds back, a few: a step of theirs takes 10 s.
AT_100 = ("none", "allreduce", "adpsgd-fixed", "adpsgd-random", "adpsgd-d1", "ps-async", "hogwild", "decent-dp ring")
HIDDEN = ("none", "adpsgd-fixed", "adpsgd-fixed bf16", "adpsgd-d1")
SIZES = ((5_000_000, 250.0), (20_000_000, 500.0), (43_000_000, 1000.0))  # parameters, ms of computation
HIVEMIND_S = 16.0  # of a round: hivemind averages every 13 s
LAUNCH_S = 1800  # longer than any launch takes

Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", nargs="*", choices=[[], *POINTS, "scale", "command"], help="by default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a contestant in a round")
    parser.add_argument("--num-learners", type=int, default=8)
    parser.add_argument("--scale", type=int, nargs="+", default=[32, 64], metavar="N", help="learners of scale")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contestants; none is always one")
    parser.add_argument("--exp", type=Path, default=EXP, help="work directory of a demo, for command")
    options = parser.parse_args()
    names = ["none", *(name for name in (*OURS[1:], *PEERS) if not options.only or name in options.only)]
    case = Case(
        contestants=tuple(names),
        num_learners=options.num_learners,
        num_parameters=500_000,
        compute_ms=100.0,
        rounds=options.rounds,
        round_s=options.seconds,
    )
    for point in options.points or (*POINTS, "scale"):
        if point == "scale":
            measure_scale(options.scale)
        elif point == "command":
            measure_command(options.exp, case.num_learners, case.compute_ms, options.rounds, options.only)
        else:
            POINTS[point](case)


def throughput(case: Case) -> None:
    print(f"\n{case.num_learners} learners, {case.num_parameters} parameters, {case.compute_ms:g} ms a step")
    compare(case)


def stragglers(case: Case) -> None:
    for slowness in (2.0, 10.0, 100.0):
        names = tuple(name for name in case.contestants if slowness < 100 or name in AT_100)
        names = tuple(name for name in names if name != "hivemind" or slowness == 10)
        print(f"\n{case.num_learners} learners, the first {slowness:g} times slower")
        compare(dataclasses.replace(case, slowness=slowness, contestants=names))


def hidden(case: Case) -> None:
    names = tuple(name for name in HIDDEN if name.split()[0] in case.contestants)
    for num_parameters, compute_ms in SIZES:
        print(f"\n2 learners, {num_parameters / 1e6:g} M parameters, {compute_ms:g} ms a step")
        large = dataclasses.replace(
            case, contestants=names, num_learners=2, num_parameters=num_parameters, compute_ms=compute_ms
        )
        print_table(launch(large), large, memory(large))


def compare(case: Case) -> None:
    """Print a table. hivemind has a launch of its own with `none`, since it brings three processes a learner."""
    others = tuple(name for name in case.contestants if name != "hivemind")
    if len(others) > 1:
        print_table(launch(dataclasses.replace(case, contestants=others)), case)
    if "hivemind" in case.contestants:
        long = dataclasses.replace(case, contestants=("none", "hivemind"), round_s=HIVEMIND_S)
        print_table(launch(long), case)


def launch(case: Case) -> list[Line]:
    """What the learners of `case` measured: the lines of their file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measured.jsonl"
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={case.num_learners}",
        ]
        arguments = [str(LEARNER), json.dumps(dataclasses.asdict(case)), str(path)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, *arguments], check=True, env=environment, timeout=LAUNCH_S)
        return [json.loads(line) for line in path.read_text().splitlines()]


def memory(case: Case) -> dict[str, float]:
    """Peak memory of a learner beyond that of `none`, as a multiple of the parameters' bytes; a launch for each."""
    peaks = {}
    for name in case.contestants:
        alone = dataclasses.replace(case, contestants=(name,), rounds=1, round_s=4 * case.compute_ms / 1000)
        peaks[name] = max(launch(alone)[-1]["peak_bytes"])
    return {name: (peak - peaks["none"]) / (4 * case.num_parameters) for name, peak in peaks.items()}


def print_table(lines: list[Line], case: Case, multiples: dict[str, float] | None = None) -> None:
    rounds = [line for line in lines if "round" in line]
    none = [line for line in rounds if line["contestant"] == "none"]
    print("| | fraction | least, greatest | CPU ms a step | distance |" + (" memory |" if multiples else ""))
    print("|---|---|---|---|---|" + ("---|" if multiples else ""))
    for line in lines[len(rounds) :]:
        name = line["contestant"]
        own = [other for other in rounds if other["contestant"] == name]
        if name == "none":
            fractions = [rate(one) / ideal_rate(case) for one in own]
        else:
            fractions = [rate(one) / rate(other) for one, other in zip(own, none, strict=True)]
        spread = f"{min(fractions):.3f}, {max(fractions):.3f}"
        last = f" {multiples[name]:.2f} |" if multiples else ""
        print(
            f"| {name} | {statistics.median(fractions):.3f} | {spread} | {statistics.median(map(cpu_ms, own)):.1f} "
            f"| {line['distance']:.1e} |{last}",
            flush=True,
        )


def rate(line: Line) -> float:
    """Steps a second of all learners together.

    Where one is slow and all wait for it, its time counts for all: others get ahead for some steps, but not for long.
    """
    slow_s = line["learners"][0]["s"] if line["waiting"] else 0.0
    return sum(learner["steps"] / max(learner["s"], slow_s) for learner in line["learners"])


def ideal_rate(case: Case) -> float:
    """The same if a step took nothing but its computation."""
    return 1000 / case.compute_ms * (case.num_learners - 1 + 1 / case.slowness)


def cpu_ms(line: Line) -> float:
    """Of a learner's process in a step, on average; without other processes that it may have started."""
    steps = sum(learner["steps"] for learner in line["learners"])
    return 1000 * sum(learner["cpu_s"] for learner in line["learners"]) / steps


POINTS = {"throughput": throughput, "stragglers": stragglers, "hidden": hidden}


if __name__ == "__main__":
    main()
