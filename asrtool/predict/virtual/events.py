"""Sources of events for virtual learners: equal learners, cluster model, log."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from asrtool.distributed.strategies.topology import Partner, on_ring, passive_partner
from asrtool.distributed.transport.event_log import events_path
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.events import Answer, Begin, End, Event, Push, Receive, Round, Send, Take, Update
from asrtool.settings import registry
from asrtool.settings.distributed import Distributed
from asrtool.settings.schema import Choice
from asrtool.train.batches.plan import Plan
from asrtool.train.ledger import records_path


def epoch_sizes(plan: Plan, num_epochs: int) -> list[int]:
    """Batches of each epoch."""
    return [after.step - before.step for before, after in itertools.pairwise(plan.borders(0, num_epochs))]


class Placed:
    """Map events of the cluster model to batches of epochs of these `sizes`.

    A round has `round_size` batches.
    """

    def __init__(self, sizes: Sequence[int], round_size: int) -> None:
        self.sizes = sizes
        self.num_rounds = [-(-size // round_size) for size in sizes]
        self.first = list(itertools.accumulate(self.num_rounds, initial=0))
        self.of_model = max(self.num_rounds)
        self.idle: set[int] = set()  # learners whose last round is none

    def place(self, event: Event) -> Event | None:
        """Return the event with its round and batch; None if there is no such step."""
        if isinstance(event, Begin):
            return self._begin(event)
        if isinstance(event, Round):
            return None if self.idle else event
        if isinstance(event, Update | Push | End) and event.learner in self.idle:
            return None
        return event

    def _begin(self, event: Begin) -> Begin | None:
        epoch, place = divmod(event.number, self.of_model)
        if place >= self.num_rounds[epoch]:
            self.idle.add(event.learner)
            return None
        self.idle.discard(event.learner)
        position = event.position
        if position is not None and position >= self.sizes[epoch]:
            position = None
        return event._replace(number=self.first[epoch] + place, epoch=epoch, position=position)


ROUND_S = 1.0


def in_lock_step(strategy: Choice, rule: AssignmentRule, plan: Plan, num_learners: int, seed: int) -> Iterator[Event]:
    """All of a training."""
    for step in itertools.count():
        begun = list(_begin(rule, plan, num_learners, step))
        if not begun:
            return
        end_s = (step + 1) * ROUND_S
        yield from begun
        yield from _end(strategy, rule, [begin.learner for begin in begun], end_s)
        yield from (End(end_s, begin.learner, step * ROUND_S, ROUND_S) for begin in begun)
        if partner := partner_of(strategy):
            yield from _exchange(partner, rule.group_size, begun, num_learners, seed, step + 1)


def _begin(rule: AssignmentRule, plan: Plan, num_learners: int, step: int) -> Iterator[Begin]:
    """Yield the beginning of a step for each learner that still has a round."""
    size = rule.round_size(num_learners)
    for learner in range(num_learners):
        number = step * (num_learners // size) + learner // size
        found = plan.round(number)
        if found:
            batches = plan.batches(found.epoch, found.slots)
            place = learner % size
            epoch, position = batches[place] if place < len(batches) else (found.epoch, None)
            yield Begin(step * ROUND_S, learner, number, epoch, position)


def _end(strategy: Choice, rule: AssignmentRule, learners: Sequence[int], at_s: float) -> Iterator[Event]:
    if rule.lockstep:
        yield Round(at_s)
    elif strategy.name == "ps-async":
        for learner in learners:
            yield from (Push(at_s, learner, server) for server in range(strategy.settings.num_servers))
    else:
        yield from (Update(at_s, learner) for learner in learners)
        if strategy.name != "hogwild":
            yield from (Take(at_s, learner) for learner in learners)


def partner_of(strategy: Choice) -> Partner | None:
    """Return the function of partners of learners or nodes; None without exchanges."""
    name, settings = strategy.name, strategy.settings
    if name == "adpsgd-pairs":
        return passive_partner
    ring = {
        "adpsgd": getattr(settings, "ring", ""),
        "adpsgd-fixed": "fixed",
        "adpsgd-random": "random",
        "h-adpsgd": getattr(settings, "outer", "").removeprefix("adpsgd-").replace("d1", ""),
    }.get(name)
    return on_ring(registry.load("ring", ring)) if ring else None


def _exchange(
    partner: Partner, node_size: int, begun: Sequence[Begin], num_learners: int, seed: int, step: int
) -> Iterator[Event]:
    at_s, num_nodes = step * ROUND_S, num_learners // node_size
    pairs = []
    for learner in (begin.learner for begin in begun):
        node = partner(num_nodes, step, seed, learner // node_size)
        if node is not None and node != learner // node_size:
            pairs.append((learner, node * node_size + learner % node_size))
    for at_once in [[pair] for pair in pairs] if partner is passive_partner else [pairs]:
        yield from (Send(at_s, one, other) for one, other in at_once)
        yield from (Answer(at_s, other, one) for one, other in at_once)
        yield from (Receive(at_s, one, other) for one, other in at_once)


AGAIN = "train again with asrtool train --events"
Line = list[Any]  # of a log, with the rank of its learner in the place of what was first, the time


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
        raise AsrtoolError(f"{out}: a learner joined the {num_learners} that began", f"{AGAIN}, and nobody joining")
    logs = [_read_log(out, rank, num_learners) for rank in range(num_learners)]
    if len({log[0][3] for log in logs}) > 1:
        raise AsrtoolError(f"{out}: its learners were on several machines, whose clocks differ", f"{AGAIN}, on one")
    return _events(out, logs)


def _read_log(out: Path, rank: int, num_learners: int) -> list[Line]:
    path = events_path(out, rank)
    if not path.exists():
        raise AsrtoolError(f"{path} is missing, of {num_learners} learners", AGAIN)
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]  # a kill may have cut the last line off
    lines = [json.loads(line) for line in whole.splitlines()]
    if not lines:
        raise AsrtoolError(f"{path} is empty", f"{AGAIN} to the end")
    if lines[0][2]:
        raise AsrtoolError(f"{path} begins after {lines[0][2]} batches, where training resumed", f"{AGAIN} to the end")
    if lines[-1][1] != "end":
        raise AsrtoolError(f"{path} has no end: the training was stopped, or still runs", f"{AGAIN} to the end")
    return sorted(lines, key=lambda line: line[0])


def _events(out: Path, logs: list[list[Line]]) -> Iterator[Event]:
    """Yield the events of all learners by time; an End precedes the next Begin."""
    merged = sorted(((line, rank) for rank, log in enumerate(logs) for line in log), key=lambda item: item[0][0])
    begin_ns = merged[0][0][0]
    records = [_read_records(out, rank) for rank in range(len(logs))]
    epoch_s = min((line["begin"] for lines in records for line in lines), default=0.0)
    ends = [_ends(lines, rank, epoch_s) for rank, lines in enumerate(records)]
    under_way = [False] * len(logs)  # a step with a batch
    for (at_ns, what, *numbers), rank in merged:
        at_s = (at_ns - begin_ns) / 1e9
        if what in ("begin", "end") and under_way[rank]:
            yield next(ends[rank])._replace(at_s=at_s)
            under_way[rank] = False
        if what == "begin":
            under_way[rank] = numbers[2] is not None
        if event := _event(at_s, what, rank, numbers):
            yield event


def _event(at_s: float, what: str, rank: int, numbers: list[Any]) -> Event | None:
    if what == "begin":
        return Begin(at_s, rank, *numbers)
    if what == "push":
        return Push(at_s, numbers[0], rank)
    kinds = {"update": Update, "take": Take, "send": Send, "answer": Answer, "receive": Receive}
    return kinds[what](at_s, rank, *numbers) if what in kinds else None


def _read_records(out: Path, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in records_path(out, rank).read_text(encoding="utf-8").splitlines()]


def _ends(lines: Iterable[dict[str, Any]], rank: int, epoch_s: float) -> Iterator[End]:
    for line in lines:
        yield End(
            at_s=0.0,
            learner=rank,
            begin_s=line["begin"] - epoch_s,
            compute_s=line["compute_s"],
            comm_s=line["comm_s"],
            wait_s=line["wait_s"],
            data_s=line["data_s"],
            num_bytes=line["bytes"],
            partners=tuple(line["partners"]),
            num_skipped=line["skipped"],
        )
