"""Batches that a learner has drawn and not trained: `learners/R.drawn`, read when learner R has died. Needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from asrtool.files import disk_full


class Drawn:
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


def read_drawn(out: Path, rank: int) -> dict[str, Any] | None:
    """``epoch`` and ``batches`` of learner `rank`; None where it told nothing."""
    try:
        drawn: dict[str, Any] = json.loads(_path(out, rank).read_bytes())
    except (OSError, ValueError):
        return None
    return drawn


def forget_drawn(out: Path) -> None:
    """Before learners start in `out`: one that dies as it starts has drawn nothing of what an earlier one had."""
    for path in (out / "learners").glob("*.drawn"):
        path.unlink(missing_ok=True)


def _path(out: Path, rank: int) -> Path:
    return out / "learners" / f"{rank}.drawn"
