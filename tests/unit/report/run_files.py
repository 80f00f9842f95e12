"""The files of a made-up training, for tests of reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def write_training(train: Path, num_learners: int = 2, num_steps: int = 40) -> None:
    """Learners take turns: a step of a quarter second each, of 2 utterances, without a pause.

    Half of it is compute, a quarter wait, an eighth comm and an eighth data; learner r sends r MB a step.
    """
    step_s = 0.25
    for rank in range(num_learners):
        lines = [
            {
                "epoch": 1, "batch": step, "step": step + 1, "samples": 2 * step + 2,
                "loss": 4.0 - 3 * step / num_steps,
                "begin": 1e9 + (step // num_learners + 0.125) * step_s,
                "compute_s": 0.5 * step_s, "wait_s": 0.25 * step_s, "comm_s": 0.125 * step_s, "data_s": 0.125 * step_s,
                "staleness": rank, "bytes": rank * 10**6, "partners": [1 - rank] if rank < 2 else [], "skipped": 1,
            }
            for step in range(rank, num_steps, num_learners)
        ]  # fmt: skip
        write_lines(train / f"learners/{rank}.jsonl", lines)
    seconds = step_s * num_steps / num_learners
    half, end = {"samples": num_steps, "step": num_steps // 2}, {"samples": 2 * num_steps, "step": num_steps}
    metrics: list[dict[str, Any]] = [
        {"kind": "train", **half, "loss": 3.0, "seconds": 0.75 * seconds},
        {"kind": "train", **end, "loss": 2.0, "seconds": seconds},
        {"kind": "dev", **end, "epoch": 1, "loss": 1.5},
    ]
    if num_learners > 1:
        metrics.insert(1, {"kind": "learners", "step": half["step"], "consensus_distance": 0.01})
        metrics.append({"kind": "learners", "step": num_steps, "consensus_distance": 0.001, "drift": 1e-7})
    write_lines(train / "metrics.jsonl", metrics)
    strategy = "adpsgd-random" if num_learners > 1 else "single"
    write_lines(
        train / "inputs.json",
        [{"settings": {"distributed": {"strategy": strategy}, "emulation": {"compute_ms": None}}}],
    )
    summary = {"num_parameters": 1234567, "num_steps": num_steps, "num_samples": 2 * num_steps, "seconds": seconds}
    write_lines(train / "train.json", [{**summary, "padding_fraction": 0.034}])
