"""Log of the changes to weights, to replay a training: `events/R.jsonl`.

A line of the log of learner R is a list: the time (nanoseconds of the monotonic clock, which all
processes of a machine share), the event, and numbers. Events of a gossip view, or of the weights of
a server, are noted while its lock is held, so their times are in the order of the changes. Events:

- ``begin``, the number of a round, its epoch, the position of the batch (null if it has no batch
  for this learner);
- ``update`` of the optimizer; ``take``, when pulls are added to the weights;
- ``send``, ``receive``, and the partner of the exchange; ``answer``, and the learner that began it;
- ``push``, and the learner whose gradient the server beside this one applied.

The first line is ``start``, the batches trained before and the machine. The last line is ``end``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from asrtool.files import disk_full

Note = Callable[..., None]  # (event, *numbers)


def no_note(what: str, *numbers: int | None) -> None:
    """Do nothing: no log is kept."""


def events_path(out: Path, rank: int) -> Path:
    """Return the path of the log of a learner."""
    return out / "events" / f"{rank}.jsonl"


class EventLog:
    """Event log of learner `rank` on `machine`; several threads may note."""

    def __init__(self, out: Path, rank: int, num_batches: int, machine: str) -> None:
        self._path = events_path(out, rank)
        self._start = num_batches, machine

    def __enter__(self) -> EventLog:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self._path, "wb")
        self.note("start", *self._start)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.note("end")
        self._file.close()

    def note(self, what: str, *numbers: int | str | None) -> None:
        """Add a line; AsrtoolError if the disk is full."""
        try:
            self._file.write(json.dumps([time.monotonic_ns(), what, *numbers]).encode() + b"\n")
        except OSError as error:
            raise disk_full(self._path, error) from error
