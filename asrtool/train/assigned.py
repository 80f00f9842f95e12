"""Batches assigned to a learner and not yet trained: `learners/R.assigned`, read when it has died. Needs no torch."""

from __future__ import annotations

import json
from io import FileIO
from pathlib import Path
from typing import Any

from asrtool.files import disk_full


class Assigned:
    """The file of learner `rank` in the training `out`; overwritten in place, since a step must not wait for it."""

    def __init__(self, out: Path, rank: int) -> None:
        self._path = _path(out, rank)
        self._file: FileIO | None = None
        self._batches: list[tuple[int, int]] = []  # epoch and number

    def open(self) -> None:
        """Begin with nothing assigned, and say so: a learner may end without a batch, where others train all.

        Raises AsrtoolError when the disk is full.
        """
        self._file = FileIO(self._path, "wb")
        self._write()

    def add(self, epoch: int, batch: int) -> None:
        """`batch` of `epoch` is assigned: epochs count from 1, batches from 0, as in the records of a learner.

        Raises AsrtoolError when the disk is full; so does `remove`.
        """
        self._batches.append((epoch, batch))
        self._write()

    def remove(self, epoch: int, batch: int) -> None:
        """`batch` is trained."""
        self._batches.remove((epoch, batch))
        self._write()

    def _write(self) -> None:
        assert self._file, "write before open"
        line = json.dumps({"batches": self._batches}).encode()
        try:
            self._file.seek(0)
            self._file.write(line)
            self._file.truncate()
        except OSError as error:
            raise disk_full(self._path, error) from error

    def close(self) -> None:
        """What was written last stays."""
        if self._file:
            self._file.close()


def read_assigned(out: Path, rank: int) -> dict[str, Any] | None:
    """``batches`` of learner `rank`, each an epoch and a number; None where it wrote nothing."""
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
    named = ", ".join(f"{batch} of epoch {epoch}" for epoch, batch in assigned["batches"])
    return f" before it had trained batch {named}"
