"""Events for virtual learners, from a simulation or the log of a training."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from asrtool.distributed.members.members import learner_file
from asrtool.distributed.transport.event_log import events_path
from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.events import Begin, Change, Emit, End, Event, Round
from asrtool.predict.simulate.scenario import Scenario
from asrtool.predict.simulate.simulate import simulate
from asrtool.settings.distributed import Distributed
from asrtool.settings.schema import Choice
from asrtool.train.batches.plan import Plan
from asrtool.train.ledger import read_records


def epoch_sizes(plan: Plan, num_epochs: int) -> list[int]:
    """Return the number of batches of each epoch."""
    return [after.step - before.step for before, after in itertools.pairwise(plan.borders(0, num_epochs))]


class BatchPlacement:
    """Map events of the cluster model to batches of epochs of these `sizes`.

    A round has `round_size` batches.
    """

    def __init__(self, sizes: Sequence[int], round_size: int) -> None:
        self.sizes = sizes
        self.num_rounds = [-(-size // round_size) for size in sizes]
        self.first = list(itertools.accumulate(self.num_rounds, initial=0))
        self.rounds_an_epoch = max(self.num_rounds)
        self.idle: set[int] = set()  # learners without a batch in their last round

    def place(self, event: Event) -> Event | None:
        """Return the event with its round and batch; None if there is no such step."""
        if isinstance(event, Round):
            return None if self.idle else event
        if not isinstance(event, Begin):
            is_of_step = isinstance(event, End) or event.kind in ("update", "push")
            return None if is_of_step and event.learner in self.idle else event
        epoch, number = divmod(event.number, self.rounds_an_epoch)
        if number >= self.num_rounds[epoch]:
            self.idle.add(event.learner)
            return None
        self.idle.discard(event.learner)
        position = event.position
        if position is not None and position >= self.sizes[epoch]:
            position = None
        return event._replace(number=self.first[epoch] + number, epoch=epoch, position=position)


def follow_simulation(
    scenario: Scenario, strategy: Choice, num_learners: int, sizes: Sequence[int], round_size: int, take: Emit
) -> float:
    """Simulate a training, pass its events to `take`, and return its seconds.

    Its epochs have `sizes` batches, in rounds of `round_size`.
    """
    placement, num_samples = BatchPlacement(sizes, round_size), max(sizes) * scenario.job.batch_of(num_learners)
    job = dataclasses.replace(scenario.job, num_samples=math.floor(num_samples), num_epochs=len(sizes))

    def emit(event: Event) -> None:
        if (found := placement.place(event)) is not None:
            take(found)

    return simulate(dataclasses.replace(scenario, job=job), strategy, num_learners, emit).seconds


HINT = "train again with asrtool train --events"
Line = list[Any]  # line of a log, with the rank of its learner in place of the time


def replay(out: Path, distributed: Distributed, num_learners: int) -> Iterator[Event]:
    """Return the events of the training in `out`, with the times of its records.

    Raises AsrtoolError if it has no whole log from its first step on, or if the order of changes to weights is unknown.
    """
    name = distributed.strategy.name
    if name == "hogwild":
        what = f"{out}: learners of hogwild read weights while others write them, in an order that nobody can log"
        raise AsrtoolError(what, "replay a training by another strategy, for example ps-async")
    if name == "single" or not (distributed.survives or name in ("adpsgd-pairs", "ps-async")):
        what = f"{out}: learners of {name} step together, always in the same order"
        raise AsrtoolError(what, "leave out --replay")
    if events_path(out, num_learners).exists():
        raise AsrtoolError(f"{out}: a learner joined the {num_learners} that began", f"{HINT}, and nobody joining")
    logs = [_read_log(out, rank, num_learners) for rank in range(num_learners)]
    if len({log[0][3] for log in logs}) > 1:
        raise AsrtoolError(f"{out}: its learners were on several machines, whose clocks differ", f"{HINT}, on one")
    return _events(out, logs)


def _read_log(out: Path, rank: int, num_learners: int) -> list[Line]:
    path = events_path(out, rank)
    if not path.exists():
        raise AsrtoolError(f"{path} is missing, of {num_learners} learners", HINT)
    lines: list[Line] = [line for line, _ in read_records(path)]
    what = ""
    if not lines:
        what = f"{path} is empty"
    elif lines[0][2]:
        what = f"{path} begins after {lines[0][2]} batches, where training resumed"
    elif lines[-1][1] != "end":
        what = f"{path} has no end: the training was stopped, or still runs"
    if what:
        raise AsrtoolError(what, f"{HINT} to the end")
    return sorted(lines, key=lambda line: line[0])


def _events(out: Path, logs: list[list[Line]]) -> Iterator[Event]:
    """Yield the events of all learners by time; an End precedes the next Begin."""
    merged = sorted(((line, rank) for rank, log in enumerate(logs) for line in log), key=lambda item: item[0][0])
    begin_ns = merged[0][0][0]
    records = [[line for line, _ in read_records(learner_file(out, rank, "jsonl"))] for rank in range(len(logs))]
    epoch_s = min((line["begin"] for lines in records for line in lines), default=0.0)
    left = [iter(lines) for lines in records]
    under_way = [False] * len(logs)  # a step with a batch
    for (at_ns, what, *numbers), rank in merged:
        at_s = (at_ns - begin_ns) / 1e9
        if what in ("begin", "end") and under_way[rank]:
            line = next(left[rank])
            times = {name: line[name] for name in ("compute_s", "comm_s", "wait_s", "data_s")}
            end = End(at_s, rank, line["begin"] - epoch_s, **times)
            yield end._replace(num_bytes=line["bytes"], partners=tuple(line["partners"]), num_skipped=line["skipped"])
            under_way[rank] = False
        if what == "begin":
            under_way[rank] = numbers[2] is not None
            yield Begin(at_s, rank, *numbers)
        elif what == "push":
            yield Change(at_s, what, numbers[0], rank)
        elif what not in ("start", "end"):
            yield Change(at_s, what, rank, *numbers)
