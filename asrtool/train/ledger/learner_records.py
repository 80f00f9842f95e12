"""Read learners' step records; for a lost learner nothing else remains."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asrtool.distributed.members.members import LostBatch, Members
from asrtool.distributed.work.work_queue import BatchNumber
from asrtool.train.batches.plan import Plan
from asrtool.train.checkpoints.checkpoint import Span, State
from asrtool.train.ledger.ledger import note


@dataclass
class Trained:
    """Batches that a learner has trained since training began or resumed."""

    record_bytes: int  # of its records
    samples: int = 0
    frames: int = 0
    padded_frames: int = 0
    trained: list[Span] = field(default_factory=list)  # since the last cut

    def extended(self, out: Path, rank: int, end: int, last_step: float) -> Trained:
        """Return it with the batches of records up to byte `end`, before a cut.

        The cut follows `last_step`. A learner reaches a cut with its first step after it, so all earlier lines are
        before the cut.
        """
        found = dataclasses.replace(self, trained=list(self.trained))
        for line, behind in _lines(out, rank, self.record_bytes, end):
            if line["step"] > last_step:
                break
            found._add(line)
            found.record_bytes = behind
        return found

    def _add(self, line: dict[str, Any]) -> None:
        note(self.trained, BatchNumber(line["epoch"] - 1, line["batch"]))
        self.samples += line["utterances"]
        self.frames += line["frames"]
        self.padded_frames += line["padded_frames"]


def find_missing(out: Path, begin: State, plan: Plan, members: Members) -> list[LostBatch]:
    """Return the batches that nobody trained since the state `begin`, with rounds.

    Called when all learners have finished `plan`; empty if no learner was lost.
    """
    if not members.losses:
        return []
    batches = set()
    for rank in members.ever:
        loss = members.losses.get(rank)
        first = begin.record_bytes[rank] if rank < len(begin.record_bytes) else 0
        for line, _ in _lines(out, rank, first, loss.record_bytes if loss else None):
            batches.add(BatchNumber(line["epoch"] - 1, line["batch"]))
    return [(number, *batch) for number, batch in plan.missing(batches)]


def _lines(out: Path, rank: int, begin: int, end: int | None) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the records of learner `rank` in a byte range, with each line's end."""
    try:
        file = open(records_path(out, rank), "rb")  # noqa: SIM115
    except FileNotFoundError:
        return
    with file:
        file.seek(begin)
        for line in file:
            begin += len(line)
            if not line.endswith(b"\n") or (end is not None and begin > end):
                return
            yield json.loads(line), begin


def records_path(out: Path, rank: int) -> Path:
    """Return the records file of learner `rank` in the training `out`."""
    return out / "learners" / f"{rank}.jsonl"
