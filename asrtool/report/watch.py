"""Progress of a training on any machine, from the files that it writes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.train.inputs import FINAL, INPUTS
from asrtool.train.loop.host_rates import HOST

METRICS_BYTES = 1 << 18  # end of metrics.jsonl with the newest lines of every kind
STEPS_BYTES = 1 << 16  # end of a learner's records
RECENT_S = 120.0  # before the last step; frames a second are a mean over it, or over STEPS_BYTES
COLUMNS = ("learners", "steps_per_s", "wait_fraction", "staleness", "skipped", "lost", "joined")


def find_training(folder: Path) -> Path:
    """Return the folder of a training, in the work folder of a recipe or by itself.

    Raises AsrtoolError if no training has begun.
    """
    for train in (folder / "train", folder):
        if (train / INPUTS).exists():
            return train
    raise AsrtoolError(f"{folder}: no training has begun there", "name a work folder, or the OUT of asrtool train")


def is_finished(train: Path) -> bool:
    """Return whether the training has ended."""
    return (train / FINAL).exists()


def format_progress(train: Path) -> str:
    """Format the newest report of a training, with a row a host."""
    metrics = train / "metrics.jsonl"
    newest = {line["kind"]: line for line in _last_lines(metrics, METRICS_BYTES)}
    paths = [path for path in train.glob("learners/*.jsonl") if not path.with_suffix(".lost").exists()]
    learners = [steps for path in paths if (steps := _last_lines(path, STEPS_BYTES))]
    if not learners:
        return f"{train}: no learner has finished a step"
    last = max((steps[-1] for steps in learners), key=lambda step: step["step"])
    line = newest.get("train", {})
    facts = [f"epoch {last['epoch']}", f"step {last['step']:,}"]
    facts += [f"loss {line['loss']:.4f}"] if "loss" in line else []  # a simulation has none, and no frames
    if "dev" in newest:
        facts.append(f"loss on dev {newest['dev']['loss']:.4f} after epoch {newest['dev']['epoch']}")
    if rate := sum(_frames_per_s(steps, last["begin"] - RECENT_S) for steps in learners):
        facts.append(f"{rate:,.0f} frames/s of all learners")
    facts += [f"{line['seconds']:,.0f} s of training"] if line else []
    age_s = time.time() - max(path.stat().st_mtime for path in paths)
    facts.append("finished" if is_finished(train) else f"last step {age_s:.0f} s ago")
    hosts = {kind: values for kind, values in sorted(newest.items()) if kind.startswith(HOST)}
    rows = [[kind.removeprefix(HOST), *(f"{values[name]:.4g}" for name in COLUMNS)] for kind, values in hosts.items()]
    table = [["host", *(name.replace("_", " ") for name in COLUMNS)], *rows] if rows else []
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([f"{train}: {', '.join(facts)}", *lines])


def _frames_per_s(steps: list[dict[str, Any]], since: float) -> float:
    """Return the frames a second of a learner's steps that began after `since`."""
    recent = [step for step in steps if step["begin"] > since]
    span_s = recent[-1]["begin"] - recent[0]["begin"] if recent else 0.0
    return sum(step["frames"] for step in recent[1:]) / span_s if span_s else 0.0


def _last_lines(path: Path, num_bytes: int) -> list[dict[str, Any]]:
    """Return the whole lines in the last `num_bytes` of a file; none if it is missing."""
    if not path.exists():
        return []
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - num_bytes))
        text = file.read()
    lines = text.split(b"\n")[:-1]
    return [json.loads(line) for line in (lines[1:] if len(text) == num_bytes else lines)]
