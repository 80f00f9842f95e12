"""What each learner does, step by step: `learners/R.jsonl` for learner R."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from asrtool.distributed.world import World
from asrtool.files import disk_full
from asrtool.train.assigned import Assigned


class Records:
    """One line a step, continued from `num_bytes`, by learner: later lines are dropped.

    A line has ``epoch``, ``batch`` (its number in the epoch), ``step`` and ``samples`` (of all learners, as the
    learning rate counts them), ``loss`` (nats a token), ``begin`` (seconds since 1970), ``compute_s``, ``comm_s``
    (communication on the computing thread), ``wait_s`` (for other learners), ``data_s`` (for data), ``staleness``
    (changes by others since the weights of the gradient) and ``bytes`` (sent).
    """

    def __init__(self, out: Path, world: World, num_bytes: list[int]) -> None:
        self.path = _path(out, world.rank)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        if world.rank == 0:  # before, there may have been more learners
            for path in self.path.parent.glob("*.jsonl"):
                rank = int(path.stem)
                if rank >= world.size:
                    os.truncate(path, num_bytes[rank] if rank < len(num_bytes) else 0)
        self._file = open(self.path, "r+b")  # noqa: SIM115
        before = num_bytes[world.rank] if world.rank < len(num_bytes) else 0
        self._file.truncate(min(before, self.path.stat().st_size))
        self._file.seek(0, io.SEEK_END)
        self._assigned = Assigned(out, world.rank)

    def __enter__(self) -> Records:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._file.close()
        self._assigned.close()

    def write_assigned(self, epoch: int, batches: list[int]) -> None:
        """Note the `batches` assigned to this learner and not yet trained, so that they can be named if it dies."""
        self._assigned.write(epoch, batches)

    def write(self, values: dict[str, Any]) -> None:
        """One line; AsrtoolError when the disk is full."""
        try:
            self._file.write(json.dumps(values).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise disk_full(self.path, error) from error

    @property
    def num_bytes(self) -> int:
        """How long the file is."""
        return self._file.tell()


def _path(out: Path, rank: int) -> Path:
    return out / "learners" / f"{rank}.jsonl"
