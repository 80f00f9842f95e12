"""Batches assigned to a learner and not yet trained: `learners/R.assigned`.

It is read if the learner is lost. Needs no torch.
"""

from __future__ import annotations

import json
from io import FileIO
from pathlib import Path
from typing import Any

from asrtool.distributed.members.members import Loss
from asrtool.files import disk_full

NUM_LAST = 100  # steps of a learner, among which are those of the batches that were assigned to it last


class Assigned:
    """File of learner `rank`, overwritten in place, since a step must not wait for it."""

    def __init__(self, out: Path, rank: int) -> None:
        self._path = _path(out, rank)
        self._file: FileIO | None = None
        self._batches: list[tuple[int, int, int]] = []  # epoch, number, and its round
        self._num_rounds = 0  # up to the last one of which it got a batch

    def open(self) -> None:
        """Start with nothing assigned, in the file too.

        A learner may end without a batch. Raises AsrtoolError if the disk is full.
        """
        self._file = FileIO(self._path, "wb")
        self._write()

    def add(self, epoch: int, batch: int, number: int) -> None:
        """Add `batch` of `epoch` in the round `number`.

        Epochs count from 1, batches and rounds from 0. Raises AsrtoolError if the disk is full; so does `remove`.
        """
        self._batches.append((epoch, batch, number))
        self._num_rounds = max(self._num_rounds, number + 1)
        self._write()

    def remove(self, epoch: int, batch: int) -> None:
        """Remove `batch`, which is trained."""
        self._batches = [assigned for assigned in self._batches if assigned[:2] != (epoch, batch)]
        self._write()

    def clear(self) -> None:
        """Remove all batches."""
        self._batches = []
        self._write()

    @property
    def is_empty(self) -> bool:
        """True if all that was assigned is trained."""
        return not self._batches

    def _write(self) -> None:
        assert self._file, "write before open"
        line = json.dumps({"batches": self._batches, "num_rounds": self._num_rounds}).encode()
        try:
            self._file.seek(0)
            self._file.write(line)
            self._file.truncate()
        except OSError as error:
            raise disk_full(self._path, error) from error

    def close(self) -> None:
        """Close the file; its content stays."""
        if self._file:
            self._file.close()


def read_assigned(out: Path, rank: int) -> dict[str, Any] | None:
    """Return ``batches`` of learner `rank` as epoch, number and round, or None.

    ``num_rounds`` counts up to the last round with a batch.
    """
    assigned: dict[str, Any]
    try:  # if it was killed while writing, the rest of the old content follows
        assigned, _ = json.JSONDecoder().raw_decode(_path(out, rank).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return assigned


def forget_assigned(out: Path) -> None:
    """Remove the files before learners start in `out`."""
    for path in (out / "learners").glob("*.assigned"):
        path.unlink(missing_ok=True)


def _path(out: Path, rank: int) -> Path:
    return out / "learners" / f"{rank}.assigned"


def describe_assigned(out: Path, rank: int) -> str:
    """Describe the untrained batches of learner `rank` for a message, or ''."""
    assigned = read_assigned(out, rank)
    if not (assigned and assigned["batches"]):
        return ""
    named = ", ".join(f"{batch} of epoch {epoch}" for epoch, batch, _ in assigned["batches"])
    return f" before it had trained batch {named}"


def examine_lost(out: Path, rank: int, why: str) -> Loss:
    """Return what the lost learner `rank` has left."""
    try:
        records = _path(out, rank).with_suffix(".jsonl").read_bytes()
    except OSError:
        records = b""
    record_bytes = records.rfind(b"\n") + 1
    last = map(json.loads, records[:record_bytes].splitlines()[-NUM_LAST:])
    trained = {(line["epoch"], line["batch"]) for line in last}
    assigned = read_assigned(out, rank) or {"batches": [], "num_rounds": 0}
    left = [(number, epoch - 1, batch) for epoch, batch, number in assigned["batches"] if (epoch, batch) not in trained]
    return Loss(rank, why, record_bytes, left, assigned["num_rounds"])
