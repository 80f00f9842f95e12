"""Calibrate a scenario from the records of trainings.

Settings that records do not show stay: messages hidden by computation, start times.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.clients import draw_trips
from asrtool.predict.simulate.cluster import GBIT, LONG, Floats, read_trace
from asrtool.predict.simulate.lock_step import LOCK_STEP
from asrtool.report.training import TrainingRun, read_training
from asrtool.settings.values import format_override

MAX_WAIT_FRACTION = 0.05  # of a step, for data or another host; above it they take longer than computing hides
NUM_HALVINGS = 40  # halvings of an interval


def settings_of(works: Iterable[Path]) -> list[str]:
    """Return ``section.key=value`` measured in the trainings; later ones win.

    Raises AsrtoolError if one has no records or is not finished.
    """
    settings: dict[str, Any] = {}
    for work in works:
        run = _read_finished(work)
        own = run.settings["distributed"].get(run.strategy, {})
        settings |= _job_settings(run)
        settings |= {f"distributed.{run.strategy}.{key}": value for key, value in own.items()}
        near, nodes = _node_settings(run, own)
        typical = _typical_learner(near)
        settings |= _step_settings(near, typical) | nodes
        settings |= _message_settings(near, typical, own) | _pause_settings(near, typical)
    return [format_override(key, value) for key, value in settings.items()]


def _read_finished(work: Path) -> TrainingRun:
    """Read the training in OUT of asrtool train, or in a work directory."""
    folder = work / "train" if (work / "train" / "learners").is_dir() else work
    hint = "name OUT of asrtool train, or a work directory"
    if not (folder / "learners").is_dir():
        raise AsrtoolError(f"--from {work}: no training there", hint)
    run = read_training(folder)
    if run.simulated:
        raise AsrtoolError(f"--from {folder}: records of a simulation", hint)
    if not run.finished:
        raise AsrtoolError(f"--from {folder}: the training there is not finished", "let it end, or name another one")
    return run


def _typical_learner(run: TrainingRun) -> int:
    """Return the learner whose steps are the median of all."""
    medians = {rank: float(np.median(steps["compute_s"])) for rank, steps in run.learners.items() if len(steps)}
    return sorted(medians, key=medians.__getitem__)[(len(medians) - 1) // 2]


def _job_settings(run: TrainingRun) -> dict[str, Any]:
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


def _node_settings(run: TrainingRun, own: dict[str, Any]) -> tuple[TrainingRun, dict[str, Any]]:
    """Return the run of the first host alone, with nodes and latency.

    If others do not wait for it, return all of the run, without settings. That host has a server, and the store, from
    which groups draw batches ahead. First steps also wait for connections.
    """
    is_near = {rank: run.hosts.get(rank) == run.hosts.get(0) for rank, steps in run.learners.items() if len(steps) > 1}
    near, away = (
        replace(run, learners={rank: run.learners[rank] for rank in is_near if is_near[rank] == side})
        for side in (True, False)
    )
    num, size = len(near.learners), _group_size(near, own)
    if run.strategy in LOCK_STEP or not (num and away.learners) or len(run.learners) % num or num % size:
        return run, {}
    beside, steps = (np.concatenate([steps[1:] for steps in side.learners.values()]) for side in (near, away))
    near_s = beside["wait_s"].mean()
    more_s = steps["wait_s"].mean() - near_s
    if more_s < max(near_s, MAX_WAIT_FRACTION * steps["compute_s"].mean()):  # or messages alone take that long
        return run, {}
    latency_s = more_s / 2
    if run.strategy != "ps-async":  # a draw takes a step; of several learners, with a step without waiting, two
        step_s = sum(steps[part].mean() for part in ("compute_s", "comm_s", "wait_s"))
        latency_s = (step_s + more_s * (size > 1)) / draw_trips(size) / 2
    return near, {"network.learners_per_node": num, "network.latency_us": 1e6 * float(latency_s)}


def _group_size(run: TrainingRun, own: dict[str, Any]) -> int:
    """Return the number of neighbours that wait for one another each step."""
    if run.strategy in LOCK_STEP:
        return len(run.learners)
    return (own["node_size"] or len(run.learners)) if run.strategy == "h-adpsgd" else 1


def _step_settings(run: TrainingRun, typical: int) -> dict[str, Any]:
    """Return the duration of steps by a typical learner's trace, and the cores needed."""
    steps, trace, num_cores = run.learners[typical], run.folder / "learners" / f"{typical}.jsonl", os.cpu_count() or 1
    found: dict[str, Any] = {"compute.trace": str(trace)}
    if (compute_ms := run.settings["emulation"]["compute_ms"]) is not None:
        cpu_ms = 1000 * float(read_trace(trace).mean()) - compute_ms  # includes the time between steps
        found = {"compute.cpu_ms": max(0.0, cpu_ms), "network.cores_per_node": num_cores, **found}
        found["compute.forward_fraction"] = 1  # it sleeps before its backward pass
    elif run.summary.get("device") == "cpu":  # the step time with cores of its own, if learners share a machine
        steps_s = read_trace(trace)
        num_cores = max(1, num_cores // max(1, run.summary["num_threads"]))  # for learners with so many threads
        ms = 1000 * float(steps_s.mean()) / max(1.0, len(run.learners) / num_cores)
        found = {
            "compute.ms": ms,
            "compute.cpu_ms": ms,
            "compute.distribution": "lognormal",
            "compute.spread": float(steps_s.std() / steps_s.mean()),
            "network.cores_per_node": num_cores,
            "network.learners_per_node": 0,
        }
    if float(steps["data_s"].mean()) > MAX_WAIT_FRACTION * float(steps["compute_s"].mean()):
        found["loading.ms"] = 1000 * float(np.median(steps["begin"][1:] - steps["begin"][:-1]))
    return found


def _message_settings(run: TrainingRun, typical: int, own: dict[str, Any]) -> dict[str, Any]:
    """Return the computing thread's share of an exchange, and the message rate.

    `own` are the settings of the strategy; one that is not there had its default.
    """
    if run.num_learners == 1:
        return {}
    found = {"network.mix_ms": 1000 * float(run.learners[typical]["comm_s"].mean())}
    size = _group_size(run, own)
    waits = [steps["wait_s"][steps["bytes"] > 0] for steps in run.learners.values()]
    wait_s = shortest_wait_s(waits, size)
    model_bytes = 4 * run.summary["num_parameters"]
    value_bytes = 2 if own.get("message_type") == "bf16" else 4
    if run.strategy.startswith("ps-") and wait_s > 0:
        message_s = server_message_s(waits) if run.strategy == "ps-sync" else wait_s
        part_bytes = float(value_bytes * run.summary["num_parameters"] / own.get("num_servers", 1))
        found["network.host_gbyte_per_s"] = part_bytes / message_s / 1e9
    elif size > 1 and wait_s > 0:
        if run.strategy in LOCK_STEP:
            sent = run.learners[typical]["bytes"]
            awaited_bytes = float(sent[sent > 0].mean()) * size
        else:  # a super-learner sums gradients and gathers slices; it does not wait for messages to others
            awaited_bytes = float((size - 1) * (2 * (model_bytes * value_bytes // 4) + model_bytes))
        rate = awaited_bytes / wait_s / GBIT  # rate of all messages in the machine together
        found |= {"network.node_gbit_per_s": float(rate), "network.efficiency": 1}
    return found


def shortest_wait_s(waits: Sequence[Floats], size: int) -> float:
    """Return the mean wait of the last of `size` neighbours: for messages only."""
    groups = [_common_steps(waits[first : first + size]) for first in range(0, len(waits), size)]
    shortest = np.concatenate([waits_KL.min(axis=1) for waits_KL in groups])
    return float(shortest.mean()) if len(shortest) else 0.0


def server_message_s(waits: Sequence[Floats]) -> float:
    """Return a `ps-sync` server's seconds for a message, as in server_waits.

    All are answered one by one from the same instant, so waits give arrival times. Waits are K steps of L learners.
    """
    waits_KL = _common_steps(waits)
    place_L = np.arange(1, len(waits) + 1)
    least, most = 0.0, float(waits_KL.min(axis=1).mean())
    for _ in range(NUM_HALVINGS):
        middle = (least + most) / 2
        came_KL = np.sort(middle * place_L - waits_KL, axis=1)  # seconds before the first answer
        read_K = (came_KL + middle * place_L[::-1]).max(axis=1)
        least, most = (middle, most) if read_K.mean() + middle < 0 else (least, middle)  # a step takes a message's time
    return float(most)


def _common_steps(waits: Sequence[Floats]) -> Floats:
    """Return waits (K, L) of the steps that all learners have."""
    return np.stack([learner_waits[: min(map(len, waits))] for learner_waits in waits], axis=1)


def _pause_settings(run: TrainingRun, typical: int) -> dict[str, Any]:
    """Return pauses between steps that are much longer than usual."""
    steps = run.learners[typical]
    ends = steps["begin"] + steps["compute_s"] + steps["comm_s"] + steps["wait_s"]
    pauses = steps["begin"][1:] - steps["data_s"][1:] - ends[:-1]
    long = pauses[pauses > max(LONG * float(np.median(pauses)), 0.01 * float(np.median(steps["compute_s"])))]
    num_checkpoints = max(1, len(run.summary["checkpoints"]))
    return {"saving.checkpoint_s": float(long.sum()) / num_checkpoints} if len(long) else {}
