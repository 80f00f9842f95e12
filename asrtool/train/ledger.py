"""Ledger of a training: the batches that are in the weights.

- `Assigned`: batches assigned to a learner and not yet trained, in `learners/R.assigned`, read if it is lost
- `TrainedBatches`: batches that a learner has trained, read from step records; `find_missing`: untrained batches
- `Ledger`: trained batches -> the place of a checkpoint, and earlier batches that are not in it, since
  asynchronous learners train the batches of an epoch in no order

Needs no torch.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.distributed.members.members import LostBatch, LostLearner, Members, learner_file
from asrtool.files import disk_full

if TYPE_CHECKING:
    from asrtool.train.batches.plan import Plan
    from asrtool.train.checkpoints.checkpoint import Span, State

NUM_LAST = 100  # last steps of a learner, which include the batches assigned to it last


class Assigned:
    """File of learner `rank`, overwritten in place, since a step must not wait for it.

    One thread adds batches while another removes them.
    """

    def __init__(self, out: Path, rank: int) -> None:
        self._path = learner_file(out, rank, "assigned")
        self._file: FileIO | None = None
        self._batches: list[tuple[int, int, int]] = []  # epoch, number, and its round
        self._num_rounds = 0  # up to the last round with a batch for it
        self._lock = threading.Lock()

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
        with self._lock:
            self._batches.append((epoch, batch, number))
            self._num_rounds = max(self._num_rounds, number + 1)
            self._write()

    def remove(self, epoch: int, batch: int) -> None:
        """Remove `batch`, which is trained."""
        with self._lock:
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
        assigned, _ = json.JSONDecoder().raw_decode(learner_file(out, rank, "assigned").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return assigned


def forget_assigned(out: Path) -> None:
    """Remove the files before learners start in `out`."""
    for path in (out / "learners").glob("*.assigned"):
        path.unlink(missing_ok=True)


def describe_assigned(out: Path, rank: int) -> str:
    """Describe the untrained batches of learner `rank` for a message, or ''."""
    assigned = read_assigned(out, rank)
    if not (assigned and assigned["batches"]):
        return ""
    named = ", ".join(f"{batch} of epoch {epoch}" for epoch, batch, _ in assigned["batches"])
    return f" before it had trained batch {named}"


def examine_lost(out: Path, rank: int, why: str) -> LostLearner:
    """Return the records and untrained batches of the lost learner `rank`."""
    try:
        records = learner_file(out, rank, "jsonl").read_bytes()
    except OSError:
        records = b""
    record_bytes = records.rfind(b"\n") + 1
    last = map(json.loads, records[:record_bytes].splitlines()[-NUM_LAST:])
    trained = {(line["epoch"], line["batch"]) for line in last}
    assigned = read_assigned(out, rank) or {"batches": [], "num_rounds": 0}
    left = [(number, epoch - 1, batch) for epoch, batch, number in assigned["batches"] if (epoch, batch) not in trained]
    return LostLearner(rank, why, record_bytes, left, assigned["num_rounds"])


@dataclass
class TrainedBatches:
    """Batches that a learner has trained since training began or resumed."""

    record_bytes: int  # length of its records
    samples: int = 0
    frames: int = 0
    padded_frames: int = 0
    trained: list[Span] = field(default_factory=list)  # since the last cut

    def extended(self, out: Path, rank: int, end: int, last_step: float) -> TrainedBatches:
        """Return it with the batches of records up to byte `end`, before a cut.

        The cut follows `last_step`. A learner reaches a cut with its first step after it, so all earlier lines are
        before the cut.
        """
        found = dataclasses.replace(self, trained=list(self.trained))
        for line, end_of_line in read_records(learner_file(out, rank, "jsonl"), self.record_bytes, end):
            if line["step"] > last_step:
                break
            found.add((line["epoch"] - 1, line["batch"]), line["utterances"], line["frames"], line["padded_frames"])
            found.record_bytes = end_of_line
        return found

    def add(self, batch: tuple[int, int], samples: int, frames: int, padded_frames: int) -> None:
        """Count `batch` as trained."""
        epoch, position = batch
        add_to_spans(self.trained, (epoch, position, position + 1))
        self.samples += samples
        self.frames += frames
        self.padded_frames += padded_frames


def add_lost(
    trained: dict[int, TrainedBatches], members: Members | None, out: Path, last_step: float, cut: float
) -> None:
    """Add batches of lost learners before the `cut` after `last_step`, by rank.

    Learners that joined later do not count.
    """
    for rank, loss in members.losses.items() if members else ():
        before = trained.setdefault(rank, TrainedBatches(0))
        if members and members.joined.get(rank, 0) < cut:
            trained[rank] = before.extended(out, rank, loss.record_bytes, last_step)


def find_missing(out: Path, begin: State, plan: Plan, members: Members) -> list[LostBatch]:
    """Return the batches that nobody trained since the state `begin`, with rounds.

    Called when all learners have finished `plan`; empty if no learner was lost.
    """
    if not members.losses:
        return []
    batches = set()
    for rank in members.all_ranks:
        loss = members.losses.get(rank)
        first = begin.record_bytes[rank] if rank < len(begin.record_bytes) else 0
        for line, _ in read_records(learner_file(out, rank, "jsonl"), first, loss.record_bytes if loss else None):
            batches.add((line["epoch"] - 1, line["batch"]))
    return [(number, *batch) for number, batch in plan.missing(batches)]


def read_records(path: Path, begin: int = 0, end: int | None = None) -> Iterator[tuple[Any, int]]:
    """Yield the whole lines of JSON in a byte range of a file, with each line's end."""
    try:
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        return
    with file:
        file.seek(begin)
        for line in file:
            begin += len(line)
            if not line.endswith(b"\n") or (end is not None and begin > end):
                return
            yield json.loads(line), begin


class Ledger:
    """Ledger of trained batches, starting from `state`."""

    def __init__(self, state: State) -> None:
        self._epoch, self._end = state.epoch, state.batch  # all before is trained or among the untrained ones
        self._untrained = list(state.untrained)
        self._origins = {origin.epoch: origin for origin in state.origins}

    def reach(self, state: State, trained: Iterable[Span]) -> State:
        """Return `state` with its place after learners have `trained` these as well.

        It has the origins of the epochs since the last call. Each batch is trained once.
        """
        self._origins |= {origin.epoch: origin for origin in state.origins}
        while self._epoch < state.epoch:
            ended, following = self._origins[self._epoch], self._origins[self._epoch + 1]
            self._extend(ended.batch + following.number - ended.number)
            self._epoch, self._end = self._epoch + 1, 0
        for span in merge_spans(trained):
            self._add(span)
        self._untrained = merge_spans(self._untrained)
        kept = {epoch for epoch, _, _ in self._untrained}
        self._origins = {epoch: self._origins[epoch] for epoch in sorted(kept | {self._epoch})}
        origins = [origin for epoch, origin in self._origins.items() if epoch in kept]
        return dataclasses.replace(state, batch=self._end, untrained=self._untrained, origins=origins)

    def _add(self, span: Span) -> None:
        epoch, first, end = span
        if epoch == self._epoch:
            self._extend(end)
        before = _num_batches(self._untrained)
        self._untrained = [left for one in self._untrained for left in _subtract(one, span)]
        assert before - _num_batches(self._untrained) == end - first, f"{span}: trained before, or not yet there"

    def _extend(self, end: int) -> None:
        if end > self._end:
            self._untrained.append((self._epoch, self._end, end))
            self._end = end


def add_to_spans(spans: list[Span], span: Span) -> None:
    """Add `span` to `spans`; extend the last of them if it is the next."""
    epoch, first, end = span
    if spans and spans[-1][0] == epoch and spans[-1][2] == first:
        spans[-1] = (epoch, spans[-1][1], end)
    else:
        spans.append(span)


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the same batches as few sorted spans, which do not overlap."""
    found: list[Span] = []
    for span in sorted(spans):
        add_to_spans(found, span)
    return found


def _subtract(span: Span, other: Span) -> Iterator[Span]:
    """Yield the parts of `span` outside `other`."""
    epoch, first, end = span
    if epoch != other[0]:
        yield span
        return
    if first < (stop := min(end, other[1])):
        yield epoch, first, stop
    if (start := max(first, other[2])) < end:
        yield epoch, start, end


def _num_batches(spans: Iterable[Span]) -> int:
    return sum(end - first for _, first, end in spans)
