"""Step records of each learner: `learners/R.jsonl`."""

from __future__ import annotations

import io
import json
import math
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from asrtool.distributed.members.members import LostLearner, learner_file
from asrtool.distributed.strategies.strategy import StepCost
from asrtool.distributed.work.work_queue import Assignment, BatchNumber
from asrtool.distributed.world import World
from asrtool.files import disk_full
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.ledger import Assigned


@dataclass(frozen=True)
class Step:
    """Step of a learner."""

    number: int  # batches that all learners have trained after it, as the learning rate counts them
    num_samples: int  # samples that all learners have trained after it
    loss: float  # nats, summed over the batch, before the update; 0 without a batch
    figures: Mapping[str, float]  # further sums that the objective reports
    grad_norm: float  # before the update and before clipping
    begin: float  # seconds since 1970
    compute_s: float
    cost: StepCost  # cost of communication


class Lines:
    """File of JSON lines that a training continues."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def open(self, num_bytes: int | None = None) -> None:
        """Continue after `num_bytes`, dropping later lines; by default after the last."""
        self.path.touch()
        self._file = open(self.path, "r+b")  # noqa: SIM115
        if num_bytes is not None:
            self._file.truncate(min(num_bytes, self.path.stat().st_size))
        self._file.seek(0, io.SEEK_END)

    def write(self, values: Mapping[str, Any]) -> None:
        """Write one line; AsrtoolError if the disk is full."""
        assert self._file, "write before open"
        try:
            self._file.write(json.dumps(values).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise disk_full(self.path, error) from error

    @property
    def num_bytes(self) -> int:
        """Length of the file."""
        assert self._file, "asked before open"
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


class Records:
    """Records of a learner, one line a step, continued from `num_bytes`.

    A line has these fields:

    - ``epoch``, ``batch`` (its number in the epoch), ``step``
    - ``samples``: of all learners, as the learning rate counts them
    - ``loss``: nats a token; null if fp16 overflowed
    - ``begin``: seconds since 1970
    - ``compute_s``; ``comm_s``: communication on the computing thread
    - ``wait_s``: waiting for other learners and, before ``begin``, for the assignment
    - ``data_s``: waiting for data
    - ``staleness``: changes by others since the weights of the gradient
    - ``bytes``: sent; ``partners``: ranks of finished exchanges since the step before
    - ``skipped``: exchanges not begun or refused
    - ``utterances``, ``frames``, ``padded_frames`` of its batch
    - ``host``: name of the machine
    """

    def __init__(self, out: Path, world: World, num_bytes: Sequence[int]) -> None:
        self._out = out
        self._world = world
        self._lengths = num_bytes
        self._lines = Lines(learner_file(out, world.rank, "jsonl"))
        self._assigned = Assigned(out, world.rank)

    def __enter__(self) -> Records:
        self._lines.path.parent.mkdir(parents=True, exist_ok=True)
        if self._world.rank == 0:  # before, there may have been more learners
            for path in self._lines.path.parent.glob("*.jsonl"):
                if (rank := int(path.stem)) >= self._world.size:
                    os.truncate(path, self._length(rank))
        self._lines.open(self._length(self._world.rank))
        self._assigned.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._lines.close()
        self._assigned.close()

    def follow(self, assignments: Iterable[Assignment]) -> Iterator[Assignment]:
        """Yield `assignments`, noting each until its step is written."""
        for assignment in assignments:
            if assignment.batch:
                self._assigned.add(assignment.batch.epoch + 1, assignment.batch.position, assignment.number)
            yield assignment

    def write(self, number: BatchNumber, step: Step, batch: TrainingBatch, num_samples: int) -> None:
        """Write the record of a step; AsrtoolError if the disk is full."""
        line = {**record_of(number, step, batch, num_samples), "host": socket.gethostname()}
        self._lines.write(line)
        self._assigned.remove(line["epoch"], line["batch"])

    def end_lost(self, losses: Mapping[int, LostLearner]) -> None:
        """Drop records that lost learners wrote after their loss, at the first live one."""
        for rank, loss in losses.items() if self._world.index == 0 else ():
            path = learner_file(self._out, rank, "jsonl")
            if path.exists():
                os.truncate(path, min(loss.record_bytes, path.stat().st_size))

    def forget_assigned(self) -> None:
        """Forget assigned batches that will not be trained."""
        self._assigned.clear()

    def is_idle(self) -> bool:
        """Return whether this learner has trained all that was assigned."""
        return self._assigned.is_empty

    @property
    def num_bytes(self) -> int:
        """Length of the file."""
        return self._lines.num_bytes

    def _length(self, rank: int) -> int:
        return self._lengths[rank] if rank < len(self._lengths) else 0


def record_of(number: BatchNumber, step: Step, batch: TrainingBatch, num_samples: int) -> dict[str, Any]:
    """Return the record of a step that trained `batch` of `num_samples` utterances."""
    return {
        "epoch": number.epoch + 1,
        "batch": number.position,
        "step": step.number,
        "samples": step.num_samples,
        "loss": step.loss / max(batch.normaliser, 1) if math.isfinite(step.loss) else None,
        "begin": round(step.begin, 6),
        "compute_s": round(step.compute_s, 6),
        "comm_s": round(step.cost.comm_s, 6),
        "wait_s": round(step.cost.wait_s + batch.draw_s, 6),
        "data_s": round(batch.wait_s, 6),
        "staleness": step.cost.staleness,
        "bytes": step.cost.num_bytes,
        "partners": list(step.cost.partners),
        "skipped": step.cost.num_skipped,
        "utterances": num_samples,
        "frames": batch.frames,
        "padded_frames": batch.padded_frames,
    }
