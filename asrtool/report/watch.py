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

TAIL_BYTES = 1 << 18  # end of metrics.jsonl with the newest lines of every kind
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
    path = train / "metrics.jsonl"
    newest = _newest_lines(path)
    if "train" not in newest:
        return f"{train}: no step is reported yet"
    line = newest["train"]
    facts = [f"epoch {line['epoch']}", f"step {line['step']:,}", f"loss {line['loss']:.4f}"]
    if "dev" in newest:
        facts.append(f"loss on dev {newest['dev']['loss']:.4f} after epoch {newest['dev']['epoch']}")
    facts += [f"{line['frames_per_s']:,.0f} frames/s of learner 0", f"{line['seconds']:,.0f} s of training"]
    facts.append("finished" if is_finished(train) else f"reported {time.time() - path.stat().st_mtime:.0f} s ago")
    hosts = {kind: values for kind, values in newest.items() if kind.startswith(HOST)}
    rows = [[kind.removeprefix(HOST), *(f"{values[name]:.4g}" for name in COLUMNS)] for kind, values in hosts.items()]
    table = [["host", *(name.replace("_", " ") for name in COLUMNS)], *rows] if rows else []
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([f"{train}: {', '.join(facts)}", *lines])


def _newest_lines(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last whole line of each kind, hosts in order."""
    if not path.exists():
        return {}
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        text = file.read()
    lines = text.split(b"\n")[:-1]
    whole = lines[1:] if len(text) == TAIL_BYTES else lines
    newest = {line["kind"]: line for line in map(json.loads, whole)}
    return dict(sorted(newest.items()))
