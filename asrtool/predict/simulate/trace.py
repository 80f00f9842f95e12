"""A measured trace: how long each step of a learner took."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrtool.errors import AsrtoolError

LONG = 10  # times the median of what lies between two steps: a pause, as for a checkpoint, that belongs to neither


def read_trace(path: Path) -> NDArray[np.float64]:
    """Seconds of each step: of a file with milliseconds, a number a line, or of ``learners/R.jsonl`` of a training.

    To a step of a training belongs what lies between it and the next, but for pauses.

    Raises AsrtoolError for a missing file, a line that is no number, and a step of no time.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AsrtoolError(
            f"compute.trace: {path} cannot be read", "name a file with milliseconds, one a line"
        ) from error
    try:
        is_training = bool(lines) and lines[0].startswith("{")
        found = _of_records(lines) if is_training else np.array([float(line) / 1000 for line in lines])
    except (ValueError, KeyError, TypeError) as error:
        what = f"{path}: expected milliseconds, one number a line, or records of steps: {error}"
        raise AsrtoolError(what, "correct the trace, or name learners/R.jsonl of a training") from error
    if not len(found) or not np.isfinite(found).all() or found.min() <= 0:
        raise AsrtoolError(f"{path}: expected one or more steps, each of more than 0 ms", "correct the trace")
    return found


def _of_records(lines: list[str]) -> NDArray[np.float64]:
    steps = [json.loads(line) for line in lines]
    begin, compute_s, data_s = (np.array([step[name] for step in steps]) for name in ("begin", "compute_s", "data_s"))
    other_s = np.array([step["comm_s"] + step["wait_s"] for step in steps])
    between_s = np.maximum(begin[1:] - data_s[1:] - (begin + compute_s + other_s)[:-1], 0)
    between_s[between_s > LONG * np.median(between_s)] = np.median(between_s) if len(between_s) else 0.0
    return compute_s + np.append(between_s, np.median(between_s) if len(between_s) else 0.0)
