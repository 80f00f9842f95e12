"""Simulate strategies whose learners wait for no step of another, by events.

At the end of a step a unit may send a message to another one or to the servers:

- gossip: to the partner of the step. The next step begins at once; without the answer to the last message none is
  sent (asrtool.distributed.strategies.gossip).
- pairs: from units of even rank, which wait for the answer to their last message.
- servers: a gradient to each server; the next step begins after all answers.
- none and hogwild: nothing is sent.

A link takes one message at a time each way, in order; so do the answering thread of a unit and a server. Events of
the same instant are in the order in which they were found, so a scenario gives the same twice.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from asrtool.predict.simulate.cluster import PERIOD, Cluster, Floats
from asrtool.predict.simulate.compiled import fits, run_compiled
from asrtool.predict.simulate.events import Answer, Begin, Emit, End, Push, Receive, Send, Take, Update
from asrtool.predict.simulate.outcome import Outcome
from asrtool.predict.simulate.queue_clients import GOSSIP, NONE, NOTHING, PAIRS, SERVERS, Rounds, Units, make_units


@dataclass
class Unit:
    """One on its way."""

    free_s: float = 0.0  # when its last step ended
    begin_s: float = 0.0  # when it had the batch of this one
    span_s: float = 0.0  # of its gradients
    factors: list[float] | float = 1.0  # by which its learners are slow
    data_s: float = 0.0
    round: int = NONE  # of the queue, that it trains
    ahead: int = NONE  # the next one, which is being read
    loaded_s: float = 0.0  # when that is there
    drawn: tuple[int, ...] = ()  # the last two rounds
    num_steps: int = 0
    awaited: int = 0  # answers to what it has sent
    asked: int = NONE  # whom it has sent that to
    sent_s: float = 0.0  # when it began to wait for those, where it waits
    is_waiting: bool = False
    num_changes: int = 0  # to its weights by others since its last step
    version: int = 0  # of the weights that it computes on, in steps of the first server, or of all (hogwild)
    partners: list[int] = field(default_factory=list)  # with whom exchanges were done since its last step
    answered_bytes: int = 0  # sent to others in answers since its last step, by each of its learners
    is_skipped: bool = False  # whether it sent nothing after its last step, since an answer had not come
    is_lost: bool = False
    is_idle: bool = False


def simulate_asynchronous(cluster: Cluster, strategy: str, settings: Any, emit: Emit | None = None) -> Outcome:
    """Run the whole training.

    Compiled events are used if these suffice and nothing reads the events.
    """
    units = make_units(cluster, strategy, settings)
    outcome = Outcome.empty(strategy, cluster.num_learners)
    if not emit and fits(cluster.scenario, units.rounds_of_epoch * cluster.scenario.job.num_epochs):
        free_U = run_compiled(units, outcome)
        end_together(units, outcome, free_U)
        return outcome
    training = Asynchronous(units, outcome, emit)
    faults = cluster.scenario.faults
    known_s, losses = cluster.scenario.distributed.timeout_s, cluster.losses()
    training.begin(cluster.scenario.saving.start_s)
    if units.joinable:
        for at in sorted(faults.join_h):
            training.at(3600 * at, training.join)
    for at, learner in chain(losses, [(math.inf, 0)]):
        training.run(at)
        if not training.events:
            break
        if units.survives:
            training.lose(at, learner // units.size, known_s)
        else:
            training.start_again(at, known_s + faults.restart_s)
    end_together(units, outcome, [unit.free_s for unit in training.all])
    return outcome


def end_together(units: Units, outcome: Outcome, free_U: Sequence[float] | Floats) -> None:
    """Let all units wait for the last one, then save and evaluate together.

    `free_U` is when each unit was through.
    """
    saving, job = units.cluster.scenario.saving, units.cluster.scenario.job
    evaluation_s = saving.evaluation_s / len(outcome.steps)
    outcome.seconds = float(max(free_U)) + saving.checkpoint_s + evaluation_s + saving.end_s
    for number, free_s in enumerate(free_U):
        outcome.between_s[list(units.members(number))] += outcome.seconds - free_s
    outcome.num_batches = units.cluster.num_batches * job.num_epochs
    outcome.batch = units.cluster.batch


class Asynchronous:
    """The events of a training; what steps take is added to `outcome`."""

    def __init__(self, units: Units, outcome: Outcome, emit: Emit | None) -> None:
        self.units = units
        self.cluster = units.cluster
        self.scenario = units.cluster.scenario
        self.outcome = outcome
        self.emit = emit
        self.all = [Unit() for _ in range(units.num_units)]
        self.live = list(range(units.num_units))  # those that the others know of
        self.phases = self.cluster.phases()
        self.events: list[tuple[float, int, Callable[..., None], tuple[int, ...]]] = []
        self.found = count()
        self.out_s: dict[int, float] = defaultdict(float)  # node -> when its link is free, each way
        self.in_s: dict[int, float] = defaultdict(float)
        self.busy_s: dict[int, float] = defaultdict(float)  # who answers -> when it is through
        self.rounds = Rounds(units.rounds_of_epoch, self.scenario.job.num_epochs)
        self.version = 0
        self.partners = functools.cache(functools.partial(units.partners, seed=self.scenario.job.seed))

    def at(self, seconds: float, what: Callable[..., None], *units: int) -> None:
        """Do `what` then."""
        heapq.heappush(self.events, (seconds, next(self.found), what, units))

    def begin(self, seconds: float) -> None:
        """All units, together."""
        for number, unit in enumerate(self.all):
            if not unit.is_lost:
                self._add_between(number, seconds - unit.free_s)
                unit.free_s, unit.ahead = seconds, self._draw(unit)
                unit.loaded_s = seconds + self._loading_s(number)
        for number, unit in enumerate(self.all):
            if not unit.is_lost:
                self._begin_step(number)

    def run(self, until: float) -> None:
        """Run to the end, or to second `until`."""
        events = self.events
        while events and events[0][0] < until:
            seconds, _, what, units = heapq.heappop(events)
            what(seconds, *units)

    # Steps

    def _begin_step(self, number: int) -> None:
        """Begin the next step of a free unit, if there is a round for it."""
        unit = self.all[number]
        unit.round, unit.ahead = unit.ahead, NONE
        if unit.round == NONE:
            unit.is_idle = True
            return
        unit.is_idle = False
        self._save(number)
        unit.begin_s = max(unit.free_s, unit.loaded_s)
        unit.data_s = unit.begin_s - unit.free_s
        unit.ahead = self._draw(unit)
        column = unit.num_steps % PERIOD
        unit.span_s = float(self.units.span_UK[number, column])
        if self.phases:
            unit.factors = [self.phases.factor(learner, unit.begin_s) for learner in self.units.members(number)]
            unit.span_s = self.units.span_s(number, column, unit.factors)
        unit.num_steps += 1
        unit.loaded_s = unit.begin_s + self._loading_s(number)
        if self.emit:
            epoch, place = divmod(unit.round, self.rounds.of_epoch)
            for member, learner in enumerate(self.units.members(number)):
                position = place * self.units.size + member
                known = position if position < self.cluster.num_batches else None
                self.emit(Begin(unit.begin_s, learner, unit.round, epoch, known))
        self.at(unit.begin_s + unit.span_s, self._have_gradients, number)

    def _loading_s(self, number: int) -> float:
        loading_UK = self.units.loading_UK
        return 0.0 if loading_UK is None else float(loading_UK[number, self.all[number].num_steps % PERIOD])

    def _save(self, number: int) -> None:
        """Pause a unit for a checkpoint; the first one decides the cut."""
        unit, saving, epoch_of = self.all[number], self.scenario.saving, self.rounds.epoch_of
        epoch_begins = unit.num_steps > 0 and epoch_of(unit.round) > epoch_of(unit.drawn[0])
        due = saving.every_steps > 0 and unit.num_steps > 0 and unit.num_steps % saving.every_steps == 0
        if not (epoch_begins or due):
            return
        if number == self.live[0]:
            self.rounds.cut(unit.free_s, epoch_of(unit.round) if epoch_begins else None)
        unit.free_s += saving.checkpoint_s
        self._add_between(number, saving.checkpoint_s)

    def _have_gradients(self, seconds: float, number: int) -> None:
        unit = self.all[number]
        if unit.is_lost:
            return
        exchange = self.units.exchange
        if exchange == SERVERS:
            self._push(seconds, number)
            return
        seconds += self.units.tail_s
        if exchange == PAIRS and unit.awaited:
            unit.is_waiting, unit.sent_s = True, seconds
            return
        if self.outcome.strategy == "hogwild":
            unit.num_changes, self.version = self.version - unit.version, self.version + 1
            unit.version = self.version
        self._end_step(seconds, number, 0.0)

    def _end_step(self, seconds: float, number: int, waited_s: float) -> None:
        """The step of a unit ends at `seconds`, but for what its exchange takes of it."""
        unit, units, outcome = self.all[number], self.units, self.outcome
        if self.emit and units.exchange != SERVERS:
            for learner in units.members(number):
                self.emit(Update(seconds, learner))
            if units.exchange != NOTHING or outcome.strategy == "none":
                for learner in units.members(number):
                    self.emit(Take(seconds, learner))
        end_s = seconds + units.comm_s
        partners, was_skipped, staleness = tuple(unit.partners), unit.is_skipped, unit.num_changes
        unit.partners, unit.is_skipped, unit.num_changes = [], False, 0
        num_bytes = int(units.inner_bytes + self._send(end_s, number) / units.size)
        place = unit.round % self.rounds.of_epoch * units.size
        for learner, computed_s in zip(units.members(number), self._computed_s(number), strict=True):
            compute_s = computed_s + self.cluster.update_s * (units.exchange != SERVERS)
            wait_s = waited_s + seconds - waited_s - unit.begin_s - compute_s if units.size > 1 else waited_s
            outcome.steps[learner] += place + learner % units.size < self.cluster.num_batches
            outcome.compute_s[learner] += compute_s
            outcome.comm_s[learner] += units.comm_s
            outcome.wait_s[learner] += wait_s
            outcome.data_s[learner] += unit.data_s
            outcome.bytes[learner] += num_bytes
            outcome.staleness[learner] += staleness
            if self.emit:
                others = tuple(partner * units.size + learner % units.size for partner in partners)
                times = (end_s, learner, unit.begin_s, compute_s, units.comm_s, wait_s, unit.data_s)
                self.emit(End(*times, num_bytes + unit.answered_bytes, others, int(was_skipped), staleness))
        unit.answered_bytes = 0
        unit.free_s = end_s
        self._begin_step(number)

    def _computed_s(self, number: int) -> list[float]:
        """Return the compute seconds of each learner of a unit; they wait for the slowest."""
        unit, units = self.all[number], self.units
        if units.size == 1:
            return [unit.span_s]
        members = units.members(number)
        column = (unit.num_steps - 1) % PERIOD
        own_s = self.cluster.compute_LK[members.start : members.stop, column] * unit.factors
        slowest = int(own_s.argmax())
        self.outcome.blamed_s[members[slowest]] += float((own_s[slowest] - own_s).sum())
        found: list[float] = own_s.tolist()
        return found

    # Messages

    def _send(self, seconds: float, number: int) -> float:
        """Begin the exchange of a step, if there is one; the bytes sent."""
        unit = self.all[number]
        if self.units.exchange not in (GOSSIP, PAIRS):
            return self.units.message_bytes * (self.units.exchange == SERVERS)
        partner = self._partner(number)
        if partner in (None, number):
            return 0.0
        if unit.awaited:
            unit.is_skipped = True
            for learner in self.units.members(number):
                self.outcome.skipped[learner] += 1
            return 0.0
        unit.awaited, unit.asked = 1, partner
        self._emit_exchange(Send, seconds, number, partner)
        self._transmit(seconds + self._host_s(1), number, partner, 1, self._serve)
        return self.units.message_bytes

    def _push(self, seconds: float, number: int) -> None:
        """A gradient, in parts, to all servers; server s lies beside learner s."""
        unit = self.all[number]
        unit.is_waiting, unit.sent_s, unit.awaited = True, seconds, self.units.num_servers
        for server in range(self.units.num_servers):
            self._transmit(seconds, number, server, self.units.num_servers, self._serve)

    def _transmit(self, seconds: float, here: int, there: int, num_parts: int, arrive: Callable[..., None]) -> None:
        """Send a part of a message; `arrive` is called on arrival."""
        links, num_bytes = self.cluster.links, self.units.message_bytes / num_parts
        node, other = self.units.node(here), self.units.node(there)
        if node == other:
            # each learner of a unit has a link of its own
            self.at(seconds + links.inner.seconds(num_bytes / self.units.size), arrive, here, there)
            return
        length_s = num_bytes / links.outer.bytes_per_s
        begin_s = max(seconds, self.out_s[node])
        self.out_s[node] = begin_s + length_s
        end_s = max(begin_s + links.outer.latency_s, self.in_s[other]) + length_s
        self.in_s[other] = end_s
        self.at(end_s, arrive, here, there)

    def _host_s(self, num_parts: int) -> float:
        return self.cluster.host_s(self.units.message_bytes / num_parts / self.units.size)

    def _serve(self, seconds: float, asking: int, number: int) -> None:
        """A message has come to who answers it, when it has answered those before."""
        if self.units.exchange != SERVERS and self.all[number].is_lost:
            return
        num_parts = max(1, self.units.num_servers)
        self.busy_s[number] = max(seconds, self.busy_s[number]) + self._host_s(num_parts)
        self.at(self.busy_s[number], self._answer, asking, number)

    def _answer(self, seconds: float, asking: int, number: int) -> None:
        num_bytes = int(self.units.message_bytes / max(1, self.units.num_servers) / self.units.size)
        self.all[number].answered_bytes += num_bytes
        self.outcome.bytes[list(self.units.members(number))] += num_bytes
        if self.units.exchange == SERVERS:
            if number == 0:
                unit = self.all[asking]
                unit.num_changes, self.version = self.version - unit.version, self.version + 1
                unit.version = self.version
            if self.emit:
                self.emit(Push(seconds, asking, number))
        else:
            self.all[number].num_changes += 1
            self._emit_exchange(Answer, seconds, number, asking)
        self._transmit_back(seconds, number, asking)

    def _transmit_back(self, seconds: float, number: int, asking: int) -> None:
        def arrive(at: float, here: int, there: int) -> None:
            self._receive(at, there, here)

        self._transmit(seconds, number, asking, max(1, self.units.num_servers), arrive)

    def _receive(self, seconds: float, number: int, partner: int) -> None:
        """An answer has come to `number`, which reads it."""
        if host_s := self._host_s(1) * (self.units.exchange != SERVERS):
            self.at(seconds + host_s, self._take, number, partner)
        else:
            self._take(seconds, number, partner)

    def _take(self, seconds: float, number: int, partner: int) -> None:
        unit = self.all[number]
        if unit.is_lost or not unit.awaited:
            return
        unit.awaited -= 1
        if self.units.exchange != SERVERS:
            unit.num_changes += 1
            unit.partners.append(partner)
            self._emit_exchange(Receive, seconds, number, partner)
            for learner in self.units.members(number):
                self.outcome.exchanges[learner] += 1
        if unit.is_waiting and not unit.awaited:
            unit.is_waiting = False
            self._end_step(seconds, number, seconds - unit.sent_s)

    def _emit_exchange(self, kind: Any, seconds: float, number: int, partner: int) -> None:
        if self.emit:
            size = self.units.size
            for member in range(size):
                self.emit(kind(seconds, number * size + member, partner * size + member))

    def _partner(self, number: int) -> int | None:
        """Return the partner of a unit; live units are numbered in their order."""
        place = self.partners(len(self.live), (self.all[number].num_steps - 1) % PERIOD + 1)[self.live.index(number)]
        return None if place is None else self.live[place]

    def _draw(self, unit: Unit) -> int:
        """The next round for a unit."""
        number, unit.drawn = self.rounds.draw(unit.drawn, len(self.live))
        return number

    # Losses and joins

    def lose(self, seconds: float, number: int, known_s: float) -> None:
        """A unit is lost, if it is not the last one; the others know it `known_s` later."""
        unit = self.all[number]
        if unit.is_lost or sum(not other.is_lost for other in self.all) == 1:
            return
        unit.is_lost = True
        self.outcome.num_losses += 1
        self.at(seconds + known_s, self._know_lost, number)

    def _know_lost(self, seconds: float, number: int) -> None:
        lost = self.all[number]
        self.live.remove(number)
        self.rounds.left += [left for left in (lost.round, lost.ahead) if left != NONE]
        for other in self.live:
            unit = self.all[other]
            if unit.awaited and unit.asked == number:
                unit.awaited, unit.is_skipped = 0, True
                self.outcome.skipped[list(self.units.members(other))] += 1
            if unit.is_idle and self.rounds.left:
                self._add_between(other, seconds - unit.free_s)
                unit.free_s = unit.loaded_s = seconds
                unit.ahead = self._draw(unit)
                self._begin_step(other)

    def join(self, seconds: float) -> None:
        """One more unit, once it has the weights of another."""
        number = len(self.all)
        self.outcome.grow(1)
        self.outcome.num_joined += 1
        begin_s = seconds + self.cluster.links.outer.seconds(self.cluster.model_bytes)
        self.all.append(Unit(free_s=begin_s))
        self._add_between(number, begin_s)
        self.at(begin_s, self._enter, number)

    def _enter(self, seconds: float, number: int) -> None:
        unit = self.all[number]
        self.live.append(number)
        unit.ahead = self._draw(unit)
        unit.loaded_s = seconds + self._loading_s(number)
        self._begin_step(number)

    def start_again(self, seconds: float, after_s: float) -> None:
        """Restart all units from the last complete checkpoint, `after_s` after a loss."""
        in_hand = [left for unit in self.all for left in (unit.round, unit.ahead) if left != NONE and not unit.is_idle]
        num_repeated, cut_s = self.rounds.restart(in_hand, seconds + after_s)
        self.outcome.num_losses += 1
        self.outcome.num_repeated += num_repeated
        self.outcome.lost_s += seconds - cut_s
        self.events.clear()
        for links in (self.out_s, self.in_s, self.busy_s):
            links.clear()
        self.all = [Unit(free_s=unit.free_s, num_steps=unit.num_steps, version=self.version) for unit in self.all]
        self.begin(max(seconds + after_s, *(unit.free_s for unit in self.all)))

    def _add_between(self, number: int, seconds: float) -> None:
        for learner in self.units.members(number):
            self.outcome.between_s[learner] += seconds
