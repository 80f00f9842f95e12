"""Compare distributed strategies with other packages, with emulated compute.

    benchmarks/bench.py dist [--slowness 1 2 10 100] [--rounds 5] [--seconds 3] [--only NAME ...]

Figures are fractions of the steps that the same learners make without communication (`none`), in the same launch and
round. A launch starts the processes once, and the contestants take turns in them. Medians over rounds, with least and
greatest. Under torchrun, whose arguments are a Case in JSON and a file, this script is one learner: it appends a line
for each contestant and round to the file.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from dist_contestants import OURS, PEERS, WARMUP_STEPS, Contestant, build_contestant

from asrtool.distributed.launch.learner import learner
from asrtool.distributed.world import World

# Few steps of strategies that the slowest learner holds back: a step takes 10 s.
AT_100 = ("none", "allreduce", "adpsgd-fixed", "adpsgd-random", "adpsgd-d1", "ps-async", "hogwild", "decent-dp ring")
HIVEMIND_S = 16.0  # of a round: hivemind averages every 13 s
LAUNCH_S = 1800  # longer than any launch takes

Line = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Parameters of one launch."""

    contestants: tuple[str, ...]
    num_learners: int
    num_parameters: int
    compute_ms: float
    slowness: float = 1.0  # of learner 0: how many times longer it computes
    rounds: int = 5
    round_s: float = 3.0  # of computing alone; at least one step


def main() -> None:
    if "RANK" in os.environ:
        be_learner(Case(**json.loads(sys.argv[1])), Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slowness", type=float, nargs="+", default=[1.0, 2.0, 10.0, 100.0], help="of learner 0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a contestant in a round")
    parser.add_argument("--num-learners", type=int, default=8)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contestants; none is always one")
    options = parser.parse_args()
    names = tuple(name for name in (*OURS[1:], *PEERS) if not options.only or name in options.only)
    case = Case(("none", *names), options.num_learners, 500_000, 100.0, rounds=options.rounds, round_s=options.seconds)
    for slowness in options.slowness:
        chosen = [name for name in case.contestants if slowness < 100 or name in AT_100]
        print(f"\n{case.num_learners} learners, {case.compute_ms:g} ms a step, the first {slowness:g} times slower")
        compare(dataclasses.replace(case, slowness=slowness, contestants=tuple(chosen)))


def compare(case: Case) -> None:
    """Print a table; hivemind has its own launch, for it starts further processes."""
    others = tuple(name for name in case.contestants if name != "hivemind")
    if len(others) > 1:
        print_table(launch(dataclasses.replace(case, contestants=others)), case)
    if "hivemind" in case.contestants:
        long = dataclasses.replace(case, contestants=("none", "hivemind"), round_s=HIVEMIND_S)
        print_table(launch(long), case)


def launch(case: Case) -> list[Line]:
    """Return the measurements of the learners of `case`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measured.jsonl"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        torchrun += [f"--nproc-per-node={case.num_learners}"]
        arguments = [__file__, json.dumps(dataclasses.asdict(case)), str(path)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*torchrun, *arguments], check=True, env=environment, timeout=LAUNCH_S)
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def print_table(lines: list[Line], case: Case) -> None:
    none = [line for line in lines if line["contestant"] == "none"]
    print("| | fraction | least, greatest | CPU ms a step |\n|---|---|---|---|")
    for name in case.contestants:
        own = [line for line in lines if line["contestant"] == name]
        if not own:
            continue
        if name == "none":
            fractions = [rate(one) / ideal_rate(case) for one in own]
        else:
            fractions = [rate(one) / rate(other) for one, other in zip(own, none, strict=True)]
        spread = f"{min(fractions):.3f}, {max(fractions):.3f}"
        cpu_ms = statistics.median(map(cpu_ms_of, own))
        print(f"| {name} | {statistics.median(fractions):.3f} | {spread} | {cpu_ms:.1f} |", flush=True)


def rate(line: Line) -> float:
    """Return steps a second of all learners together.

    If all wait for a slow one, its time counts for all: others get ahead for some steps, but not for long.
    """
    slow_s = line["learners"][0]["s"] if line["waiting"] else 0.0
    return sum(learner["steps"] / max(learner["s"], slow_s) for learner in line["learners"])


def ideal_rate(case: Case) -> float:
    """Return the rate of steps that take only their computation."""
    return 1000 / case.compute_ms * (case.num_learners - 1 + 1 / case.slowness)


def cpu_ms_of(line: Line) -> float:
    """Return the mean CPU time of a step of a learner, without its child processes."""
    steps = sum(learner["steps"] for learner in line["learners"])
    return 1000 * sum(learner["cpu_s"] for learner in line["learners"]) / steps


def be_learner(case: Case, path: Path) -> None:
    torch.set_num_threads(1)
    with learner() as world:
        contestants = {name: start(name, case, world) for name in case.contestants}
        for _ in range(case.rounds):
            for name, contestant in contestants.items():
                learners = world.gather(run_round(contestant, case, world))
                waiting = case.slowness > 1 and contestant.assignment_rule.lockstep
                if world.rank == 0:
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({"contestant": name, "learners": learners, "waiting": waiting}) + "\n")
        for contestant in contestants.values():
            contestant.close()


def start(name: str, case: Case, world: World) -> Contestant:
    """Build a contestant and make its first steps, which differ from later ones."""
    contestant = build_contestant(name, case.num_parameters, case.compute_ms, world)
    contestant.task.compute_s = 0.02
    for _ in range(WARMUP_STEPS):
        contestant.step()
    contestant.rest()
    return contestant


def run_round(contestant: Contestant, case: Case, world: World) -> dict[str, Any]:
    """Run steps of this learner; return their number, seconds and CPU seconds.

    Learners in lock-step make as many steps as the slowest of them. Others make as many as they can and begin one after
    the other, as learners do after a while. The first step is not counted.
    """
    rule, compute_s = contestant.assignment_rule, case.compute_ms / 1000
    world.barrier()
    contestant.task.compute_s = compute_s
    if not rule.lockstep:
        time.sleep(compute_s * (world.rank // rule.group_size * rule.group_size) / world.size)
    contestant.step()
    contestant.task.compute_s = compute_s * (case.slowness if world.rank == 0 else 1)
    num_steps = count_steps(contestant, case, world)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    for _ in range(num_steps):
        contestant.step()
    measured = {"steps": num_steps, "s": time.perf_counter() - begin, "cpu_s": time.process_time() - cpu_begin}
    contestant.rest()
    return measured


def count_steps(contestant: Contestant, case: Case, world: World) -> int:
    """Return steps of a group's slowest learner in `round_s`, in whole periods."""
    rule = contestant.assignment_rule
    group_size = world.size if rule.lockstep else rule.group_size
    step_s = case.compute_ms / 1000 * (case.slowness if world.rank < group_size else 1)
    return math.ceil(case.round_s / step_s / contestant.period) * contestant.period


if __name__ == "__main__":
    main()
