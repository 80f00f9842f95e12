"""In which order weights changed, for a training to be replayed: `events/R.jsonl` of learner R.

A line is a list: when (nanoseconds of the monotonic clock, which all processes of a machine share), what, and numbers.
What happens to a gossip view, or to the weights of a server, is noted while its lock is held, so the times are in the
very order of the changes. What there is:

- ``begin``, the number of a round, its epoch, the position of the batch (null where there is none for this learner);
- ``update``, the optimizer's; ``take``, of what was pulled into the weights;
- ``send``, ``receive``, and the partner of the exchange; ``answer``, and who asked;
- ``push``, and the learner whose gradient the server beside this one made a step of.

The first line has ``start``, the batches trained before and the machine, the last one ``end``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from asrtool.files import disk_full

Note = Callable[..., None]  # of what, and numbers


def no_note(what: str, *numbers: int | None) -> None:
    """Where no log is kept."""


def events_path(out: Path, rank: int) -> Path:
    """The log of a learner."""
    return out / "events" / f"{rank}.jsonl"


class EventLog:
    """That of learner `rank`, on `machine`, of the training in `out`, which has trained `num_batches`.

    Opened when entered. Several threads may note.
    """

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
        """Add a line; AsrtoolError when the disk is full."""
        try:
            self._file.write(json.dumps([time.monotonic_ns(), what, *numbers]).encode() + b"\n")
        except OSError as error:
            raise disk_full(self._path, error) from error
