"""A measured trace: how long each step of a learner took."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrtool.errors import AsrtoolError


def read_trace(path: Path) -> NDArray[np.float64]:
    """Seconds of each step: of a file with milliseconds, a number a line, or of ``learners/R.jsonl`` of a training.

    Raises AsrtoolError for a missing file, a line that is no number, and a step of no time.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AsrtoolError(
            f"compute.trace: {path} cannot be read", "name a file with milliseconds, one a line"
        ) from error
    seconds = []
    for number, line in enumerate(lines, 1):
        try:
            seconds.append(json.loads(line)["compute_s"] if line.startswith("{") else float(line) / 1000)
        except (ValueError, KeyError, TypeError) as error:
            what = f"{path}: line {number}: found {line[:40]!r}, expected milliseconds"
            raise AsrtoolError(what, "write one number a line, or name learners/R.jsonl of a training") from error
    found = np.array(seconds)
    if not len(found) or not np.isfinite(found).all() or found.min() <= 0:
        raise AsrtoolError(f"{path}: expected one or more steps, each of more than 0 ms", "correct the trace")
    return found
