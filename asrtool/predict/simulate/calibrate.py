"""Calibrate a scenario from the records of trainings.

Settings that records do not show stay: messages hidden by computation, start times.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.cluster import GBIT, LONG, Floats, read_trace
from asrtool.predict.simulate.lock_step import LOCK_STEP
from asrtool.report.training import TrainingRun, read_training
from asrtool.settings.values import format_override

DATA_BOUND = 0.05  # of the time spent waiting for data, from which on reading takes longer than a step
HALVINGS = 40  # of an interval


def settings_of(works: Iterable[Path]) -> list[str]:
    """Return ``section.key=value`` measured in the trainings; later ones win.

    Raises AsrtoolError if one has no records or is not finished.
    """
    settings: dict[str, Any] = {}
    for work in works:
        run = read_finished(work)
        for part in (of_job, of_strategy, of_steps, of_messages, of_pauses):
            settings |= part(run)
    return [format_override(key, value) for key, value in settings.items()]


def read_finished(work: Path) -> TrainingRun:
    """Read the training in OUT of asrtool train, or in a work directory."""
    folder = work / "train" if (work / "train" / "learners").is_dir() else work
    if not (folder / "learners").is_dir():
        raise AsrtoolError(f"--from {work}: no training there", "name OUT of asrtool train, or a work directory")
    run = read_training(folder)
    if run.simulated:
        what = f"--from {folder}: records of a simulation"
        raise AsrtoolError(what, "name OUT of asrtool train, or a work directory")
    if not run.finished:
        raise AsrtoolError(f"--from {folder}: the training there is not finished", "let it end, or name another one")
    return run


def typical_learner(run: TrainingRun) -> int:
    """Return the learner whose steps are the median of all."""
    medians = {rank: float(np.median(steps["compute_s"])) for rank, steps in run.learners.items() if len(steps)}
    return sorted(medians, key=medians.__getitem__)[(len(medians) - 1) // 2]


def of_job(run: TrainingRun) -> dict[str, Any]:
    """Return the settings of [job] of a training. A sample is an utterance."""
    summary = run.summary
    num_epochs = max(1, summary["num_epochs"])
    num_samples = max(1, round(summary["num_samples"] / num_epochs))
    return {
        "job.num_epochs": num_epochs,
        "job.num_samples": num_samples,
        "job.batch": max(1, int(num_samples * num_epochs / run.num_steps)),
        "job.parameters_m": summary["num_parameters"] / 1e6,
        "distributed.num_learners": len(run.learners),
    }


def of_strategy(run: TrainingRun) -> dict[str, Any]:
    """Return the settings of the strategy, which decide messages."""
    name = run.strategy
    return {f"distributed.{name}.{key}": value for key, value in run.settings["distributed"].get(name, {}).items()}


def of_steps(run: TrainingRun) -> dict[str, Any]:
    """Return the duration of steps by a typical learner's trace, and the cores needed."""
    typical, compute_ms = typical_learner(run), run.settings["emulation"]["compute_ms"]
    steps, trace = run.learners[typical], run.folder / "learners" / f"{typical}.jsonl"
    if compute_ms is not None:
        cpu_ms = 1000 * float(read_trace(trace).mean()) - compute_ms  # what lies between steps as well
        found: dict[str, Any] = {"compute.cpu_ms": max(0.0, cpu_ms), "network.cores_per_node": os.cpu_count() or 1}
        found |= {"compute.trace": str(trace), "compute.forward_fraction": 1}  # it sleeps before its backward pass
    elif run.summary.get("device") == "cpu":
        found = of_cores(run, read_trace(trace))
    else:
        found = {"compute.trace": str(trace)}
    data_s = float(steps["data_s"].mean())
    if data_s > DATA_BOUND * float(steps["compute_s"].mean()):
        taken_s = steps["begin"][1:] - steps["begin"][:-1]
        found["loading.ms"] = 1000 * float(np.median(taken_s))
    return found


def of_cores(run: TrainingRun, steps_s: NDArray[np.float64]) -> dict[str, Any]:
    """Return the step time with cores of its own, if learners share a machine."""
    num_threads = max(1, run.summary["num_threads"])
    num_cores = max(1, (os.cpu_count() or 1) // num_threads)  # for learners with `num_threads`
    ms = 1000 * float(steps_s.mean()) / max(1.0, len(run.learners) / num_cores)
    return {
        "compute.ms": ms,
        "compute.cpu_ms": ms,
        "compute.distribution": "lognormal",
        "compute.spread": float(steps_s.std() / steps_s.mean()),
        "network.cores_per_node": num_cores,
        "network.learners_per_node": 0,
    }


def of_messages(run: TrainingRun) -> dict[str, Any]:
    """Return the computing thread's share of an exchange, and the message rate."""
    if len(run.learners) == 1:
        return {}
    steps = run.learners[typical_learner(run)]
    found = {"network.mix_ms": 1000 * float(steps["comm_s"].mean())}
    size = sync_size(run)
    waits = [steps["wait_s"][steps["bytes"] > 0] for steps in run.learners.values()]
    wait_s = shortest_wait_s(waits, size)
    if run.strategy.startswith("ps-") and wait_s > 0:
        message_s = server_message_s(waits) if run.strategy == "ps-sync" else wait_s
        found["network.host_gbyte_per_s"] = part_bytes(run) / message_s / 1e9
    elif size > 1 and wait_s > 0:
        rate = awaited_bytes(run, size) / wait_s / GBIT  # of all messages in the machine together
        found |= {"network.node_gbit_per_s": float(rate), "network.efficiency": 1}
    return found


def sync_size(run: TrainingRun) -> int:
    """Return how many neighbours wait for one another each step; 1 if none."""
    if run.strategy in LOCK_STEP:
        return len(run.learners)
    return run.settings["distributed"]["h-adpsgd"]["node_size"] or 1 if run.strategy == "h-adpsgd" else 1


def shortest_wait_s(waits: Sequence[Floats], size: int) -> float:
    """Return the mean wait of the last of `size` neighbours: for messages only."""
    groups = [_together(waits[first : first + size]) for first in range(0, len(waits), size)]
    shortest = np.concatenate([waits_KL.min(axis=1) for waits_KL in groups])
    return float(shortest.mean()) if len(shortest) else 0.0


def server_message_s(waits: Sequence[Floats]) -> float:
    """Return the seconds of a `ps-sync` server for one message, by ServerRule.

    All are answered one by one from the same instant, so waits give arrival times. Waits are K steps of L learners.
    """
    waits_KL = _together(waits)
    place_L = np.arange(1, len(waits) + 1)
    least, most = 0.0, float(waits_KL.min(axis=1).mean())
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        came_KL = np.sort(middle * place_L - waits_KL, axis=1)  # seconds before the first answer
        read_K = (came_KL + middle * place_L[::-1]).max(axis=1)
        if read_K.mean() + middle < 0:  # a step as long as a message
            least = middle
        else:
            most = middle
    return float(most)


def part_bytes(run: TrainingRun) -> float:
    """Return the bytes of one message of a gradient or weights to or from a server."""
    settings = run.settings["distributed"].get(run.strategy, {})  # a setting that is not there had its default
    value_bytes = 2 if settings.get("message_type") == "bf16" else 4
    return float(value_bytes * run.summary["num_parameters"] / settings.get("num_servers", 1))


def _together(waits: Sequence[Floats]) -> Floats:
    """Return waits (K, L) of the steps that all learners have."""
    return np.stack([of_one[: min(map(len, waits))] for of_one in waits], axis=1)


def awaited_bytes(run: TrainingRun, size: int) -> float:
    """Return the bytes of a step that `size` neighbours wait for, together."""
    if run.strategy in LOCK_STEP:
        sent = run.learners[typical_learner(run)]["bytes"]
        return float(sent[sent > 0].mean()) * size
    # a super-learner: gradients are summed, slices of the weights gathered; it does not wait for messages to others
    model_bytes, settings = 4 * run.summary["num_parameters"], run.settings["distributed"]["h-adpsgd"]
    gradient_bytes = model_bytes // 2 if settings["message_type"] == "bf16" else model_bytes
    return float((size - 1) * (2 * gradient_bytes + model_bytes))


def of_pauses(run: TrainingRun) -> dict[str, Any]:
    """Return pauses between steps that are much longer than usual."""
    steps = run.learners[typical_learner(run)]
    ends = steps["begin"] + steps["compute_s"] + steps["comm_s"] + steps["wait_s"]
    pauses = steps["begin"][1:] - steps["data_s"][1:] - ends[:-1]
    long = pauses[pauses > max(LONG * float(np.median(pauses)), 0.01 * float(np.median(steps["compute_s"])))]
    num_checkpoints = max(1, len(run.summary["checkpoints"]))
    return {"saving.checkpoint_s": float(long.sum()) / num_checkpoints} if len(long) else {}
