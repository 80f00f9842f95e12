"""Batches assigned to a learner and not yet trained: `learners/R.assigned`, read when it has died. Needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from asrtool.files import disk_full


class Assigned:
    """The file of learner `rank` in the training `out`; overwritten in place, since a step must not wait for it."""

    def __init__(self, out: Path, rank: int) -> None:
        self._file = open(_path(out, rank), "wb", buffering=0)  # noqa: SIM115

    def write(self, epoch: int, batches: list[int]) -> None:
        """`batches` of `epoch`: epochs count from 1, batches from 0, as in the records of a learner.

        Raises AsrtoolError when the disk is full.
        """
        line = json.dumps({"epoch": epoch, "batches": batches}).encode()
        try:
            self._file.seek(0)
            self._file.write(line)
            self._file.truncate()
        except OSError as error:
            raise disk_full(self._file.name, error) from error

    def close(self) -> None:
        """What was written last stays."""
        self._file.close()


def read_assigned(out: Path, rank: int) -> dict[str, Any] | None:
    """``epoch`` and ``batches`` of learner `rank`; None where it wrote nothing."""
    try:
        assigned: dict[str, Any] = json.loads(_path(out, rank).read_bytes())
    except (OSError, ValueError):
        return None
    return assigned


def forget_assigned(out: Path) -> None:
    """Before learners start in `out`: one that dies as it starts has nothing of what an earlier one had."""
    for path in (out / "learners").glob("*.assigned"):
        path.unlink(missing_ok=True)


def _path(out: Path, rank: int) -> Path:
    return out / "learners" / f"{rank}.assigned"


def describe_assigned(out: Path, rank: int) -> str:
    """What learner `rank` left untrained, for a message: nothing where it left none."""
    assigned = read_assigned(out, rank)
    if not (assigned and assigned["batches"]):
        return ""
    named = ", ".join(str(batch) for batch in assigned["batches"])
    return f" before it had trained batch {named} of epoch {assigned['epoch']}"
