"""One learner of `benchmarks/dist.py`: all contestants take turns in it, so that each has the same machine.

A process of torchrun; the arguments are a Case in JSON and the file for what was measured: a line for each contestant
and round, and at the end one for each contestant.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from dist_contestants import WARMUP_STEPS, Contestant, build_contestant

from asrtool.distributed.launch.learner import learner
from asrtool.distributed.world import World

CLEAR_PEAK = "5"  # to /proc/self/clear_refs


@dataclass(frozen=True)
class Case:
    """What one launch measures."""

    contestants: tuple[str, ...]
    num_learners: int
    num_parameters: int
    compute_ms: float
    slowness: float = 1.0  # of learner 0: how many times longer it computes
    rounds: int = 5
    round_s: float = 3.0  # of computing alone; at least one step


def main() -> None:
    case = Case(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    with learner() as world:
        reset_peak()
        contestants = {name: start(name, case, world) for name in case.contestants}
        for number in range(case.rounds):
            for name, contestant in contestants.items():
                learners = world.gather(run_round(contestant, case, world))
                line = {"contestant": name, "round": number, "learners": learners}
                waiting = case.slowness > 1 and contestant.assignment_rule.lockstep
                if world.rank == 0:
                    write_line(Path(sys.argv[2]), {**line, "waiting": waiting})
        for name, contestant in contestants.items():
            distance = consensus_distance(contestant.weights_P(), world)
            peaks = world.gather(peak_bytes())
            if world.rank == 0:
                write_line(Path(sys.argv[2]), {"contestant": name, "distance": distance, "peak_bytes": peaks})
        for contestant in contestants.values():
            contestant.close()


def start(name: str, case: Case, world: World) -> Contestant:
    """Build a contestant and get over its first steps, which differ."""
    contestant = build_contestant(name, case.num_parameters, case.compute_ms, world)
    contestant.task.compute_s = 0.02
    for _ in range(WARMUP_STEPS):
        contestant.step()
    contestant.rest()
    return contestant


def run_round(contestant: Contestant, case: Case, world: World) -> dict[str, Any]:
    """What this learner did: so many steps in so many seconds, with so much CPU time.

    Those who step together make as many steps as the slowest of them; others make as many as they can, and begin one
    after the other, as learners do that have run for long. A first step is not counted.
    """
    assignment_rule, compute_s = contestant.assignment_rule, case.compute_ms / 1000
    world.barrier()
    contestant.task.compute_s = compute_s
    if not assignment_rule.lockstep:
        time.sleep(compute_s * (world.rank // assignment_rule.group_size * assignment_rule.group_size) / world.size)
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
    """So many that the slowest of those who step together computes for `round_s`, in whole periods."""
    assignment_rule = contestant.assignment_rule
    group_size = world.size if assignment_rule.lockstep else assignment_rule.group_size
    step_s = case.compute_ms / 1000 * (case.slowness if world.rank < group_size else 1)
    return math.ceil(case.round_s / step_s / contestant.period) * contestant.period


def consensus_distance(weights_P: torch.Tensor, world: World) -> float:
    """Root mean square over the learners of ||w - mean of w|| / ||mean of w||."""
    mean_P = weights_P.clone()
    world.mean(mean_P)
    squares = sum(world.gather(float((weights_P - mean_P).norm()) ** 2))
    return math.sqrt(squares / world.size) / float(mean_P.norm())


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text(CLEAR_PEAK)


def peak_bytes() -> int:
    """The most memory this process has held since `reset_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def write_line(path: Path, values: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()
