"""Simulate strategies whose learners wait for no step of another, by events.

At the end of a step a unit may send a message to another one or to the servers:

- gossip: to the partner of the step. The next step begins at once; without the answer to the last message none is
  sent (asrtool.distributed.strategies.gossip).
- pairs: from units of even rank, which wait for the answer to their last message.
- servers: a gradient to each server; the next step begins after all answers.
- none and hogwild: nothing is sent.

A link takes one message at a time each way, in order; so do the answering thread of a unit and a server. Events of
the same instant are in the order in which they were found, so a scenario gives the same twice.

The functions of events run as Python, or compiled by numba, to the same bits. Compiled functions have WATCHED false:
no log, losses and joins. Shapes: L learners, U units, K steps.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asrtool.compiled import compiled
from asrtool.distributed.work.work_queue import stop_of_others
from asrtool.predict.simulate.clients import NONE, Partners, Setup, make_partners, make_setup, node_of
from asrtool.predict.simulate.cluster import PERIOD, Cluster
from asrtool.predict.simulate.events import Begin, Change, Emit, End
from asrtool.predict.simulate.outcome import COUNTS, SUMS, Outcome

Array = NDArray[Any]
WATCHED = True
COMPILING = threading.Lock()
MIN_ROUNDS = 20_000  # of a training; to load the compiled events takes as long as fewer events in Python
GRADIENTS, SERVE, ANSWER, RECEIVE, TAKE, KNOW_LOST, JOIN, ENTER = range(8)  # kinds of events


@dataclass
class Unit:
    """State of a unit: times in seconds, rounds of the queue, messages and weights."""

    free_s: float = 0.0  # when its last step ended
    begin_s: float = 0.0  # when it had the batch of this one
    data_s: float = 0.0
    loaded_s: float = 0.0  # when the next batch is loaded
    sent_s: float = 0.0  # when it began to wait for answers
    busy_s: float = 0.0  # until when its answering thread, or the server beside it, is busy
    round: int = NONE  # that it trains
    ahead: int = NONE  # the next one, which is being read
    before: int = NONE  # the last two rounds drawn
    last: int = NONE
    num_steps: int = 0
    num_changes: int = 0  # to its weights by others since its last step
    version: int = 0  # of the weights that it computes on, in steps of the first server, or of all (hogwild)
    awaited: int = 0  # answers to its messages
    asked: int = NONE  # receiver of these
    answered_bytes: int = 0  # sent in answers since its last step, by each of its learners
    is_waiting: bool = False
    is_skipped: bool = False  # its last step sent nothing, since an answer had not come
    is_lost: bool = False
    is_idle: bool = False
    node: int = 0
    place: int = NONE  # among the live units
    partners: list[int] = field(default_factory=list)  # of exchanges since its last step, if watched


@dataclass
class Counts:
    """Counters of a training."""

    events: int = 0
    rounds: int = 0  # drawn
    done: int = 0  # units that left the last rounds to others
    version: int = 0  # of the weights of the first server, or of all
    live: int = 0  # units that the others know of


# Sums over the steps of a learner, as in Outcome.
Sums = dataclasses.make_dataclass(
    "Sums", [(name, "int", 0) if name in COUNTS else (name, "float", 0.0) for name in SUMS]
)


class State(NamedTuple):
    """State of a training.

    Compiled functions get structured arrays of units, counts and sums.
    """

    setup: Setup
    partners: Any  # step, place -> place of the partner, or NONE
    units: Any
    counts: Any
    out_s: Any  # until when the link of a node is busy, each way
    in_s: Any
    sums: Any  # of learners
    events: list[tuple[float, int, int, int, int]]  # seconds, order, kind, unit, other unit
    watch: Any


def simulate_asynchronous(cluster: Cluster, strategy: str, settings: Any, emit: Emit | None = None) -> Outcome:
    """Run the whole training, compiled if it is long and nothing has to be watched."""
    setup = make_setup(cluster, strategy, settings)
    job, faults, saving = cluster.scenario.job, cluster.scenario.faults, cluster.scenario.saving
    partners = make_partners(strategy, settings, setup.num_units, job.seed)
    outcome = Outcome(strategy, cluster.num_learners, cluster.num_batches * job.num_epochs, cluster.batch)
    is_plain = not (emit or faults.lost or faults.mtbf_h or faults.join_h)
    if is_plain and setup.num_rounds >= MIN_ROUNDS:
        free_U: Any = _run_compiled(setup, cluster, partners, outcome)
    else:
        free_U = Watch(setup, cluster, partners, outcome, emit).run(settings)
    evaluation_s = saving.evaluation_s / len(outcome.steps)
    outcome.seconds = float(max(free_U)) + saving.checkpoint_s + evaluation_s + saving.end_s
    for number, free_s in enumerate(free_U):  # all wait for the last one, save and evaluate together
        outcome.between_s[number * setup.size : (number + 1) * setup.size] += outcome.seconds - free_s
    return outcome


class Watch:
    """A training in Python, with an event log, checkpoints, losses and joins."""

    def __init__(self, setup: Setup, cluster: Cluster, partners: Partners, outcome: Outcome, emit: Emit | None) -> None:
        self.cluster, self.outcome, self.emit = cluster, outcome, emit
        self.live = list(range(setup.num_units))
        self.left: list[int] = []  # rounds that lost units had drawn
        self.cuts = [(0, 0.0)]  # the rounds before which checkpoints lie, and their seconds
        self.partners = functools.cache(partners)  # number of live units, step -> partners
        units = [Unit(node=node_of(setup, cluster, number), place=number) for number in self.live]
        num_nodes = 1 + units[-1].node + len(cluster.scenario.faults.join_h)
        out_s, in_s = [0.0] * num_nodes, [0.0] * num_nodes
        counts, sums = Counts(live=len(units)), [Sums() for _ in range(cluster.num_learners)]
        self.state = State(setup, self, units, counts, out_s, in_s, sums, [], self)

    def run(self, settings: Any) -> list[float]:
        """Run the whole training; return when each unit was through."""
        state, faults = self.state, self.cluster.scenario.faults
        _begin(state, state.setup.start_s)
        if getattr(settings, "joinable", False):
            for at in sorted(faults.join_h):
                _at(state, 3600 * at, JOIN, 0, 0)
        for at, learner in chain(self.cluster.losses(), [(math.inf, 0)]):
            _run(state, at)
            if not state.events:
                break
            if getattr(settings, "survives", False):
                self._lose(at, learner // state.setup.size)
            else:
                self._start_again(at)
        for name in SUMS:
            setattr(self.outcome, name, np.array([getattr(sums, name) for sums in state.sums]))
        return [unit.free_s for unit in state.units]

    def __getitem__(self, key: tuple[int, int]) -> int:
        """Return the place of the partner of a unit at a place, after a step."""
        column, place = key
        return self.partners(len(self.live), column + 1)[place]

    def log(self, kind: str, seconds: float, number: int, *others: int) -> None:
        """Log an event of each learner of a unit, with its counterpart in another."""
        if self.emit:
            size = self.state.setup.size
            for member in range(size):
                self.emit(Change(seconds, kind, number * size + member, *(other * size + member for other in others)))

    def begin(self, number: int) -> None:
        """Log the beginning of a step."""
        setup, unit = self.state.setup, self.state.units[number]
        if self.emit:
            epoch, place = divmod(unit.round, setup.rounds_of_epoch)
            for member in range(setup.size):
                position = place * setup.size + member
                known = position if position < setup.num_batches else None
                self.emit(Begin(unit.begin_s, number * setup.size + member, unit.round, epoch, known))

    def update(self, seconds: float, number: int) -> None:
        """Log the optimizer's update of a learner."""
        if not self.state.setup.to_servers:
            self.log("update", seconds, number)
            if not self.state.setup.counts_steps:
                self.log("take", seconds, number)

    def end(self, times: Any, num_bytes: int, partners: list[int], num_skipped: int, staleness: int) -> None:
        """Log the end of a step with exchanges with `partners`; `times` begins an End."""
        if self.emit:
            size, learner = self.state.setup.size, times[1]
            ranks = tuple(unit * size + learner % size for unit in partners)
            self.emit(End._make((*times, num_bytes, ranks, num_skipped, staleness)))

    def save(self, number: int, epoch: int) -> None:
        """Make the checkpoint of the first live unit, at the start of `epoch` unless NONE."""
        if number == self.live[0]:
            state = self.state
            cut = state.counts.rounds if epoch == NONE else epoch * state.setup.rounds_of_epoch
            self.cuts.append((cut, state.units[number].free_s))

    def happen(self, seconds: float, kind: int, number: int) -> None:
        """Handle the events of losses and joins."""
        state = self.state
        if kind == KNOW_LOST:
            self._know_lost(seconds, number)
        elif kind == JOIN:
            self._join(seconds)
        else:
            self._renumber([*self.live, number])
            unit = state.units[number]
            unit.ahead = _draw(state, unit)
            unit.loaded_s = seconds + state.setup.loading_UK[number, 0]
            _begin_step(state, number)

    def _lose(self, seconds: float, number: int) -> None:
        """Lose a unit, unless it is the last one; the others know it after the timeout."""
        units = self.state.units
        if units[number].is_lost or sum(not unit.is_lost for unit in units) == 1:
            return
        units[number].is_lost = True
        self.outcome.num_losses += 1
        _at(self.state, seconds + self.cluster.scenario.distributed.timeout_s, KNOW_LOST, number, 0)

    def _know_lost(self, seconds: float, number: int) -> None:
        state, lost = self.state, self.state.units[number]
        self._renumber([unit for unit in self.live if unit != number])
        self.left += [left for left in (lost.round, lost.ahead) if left != NONE]
        for other in self.live:
            unit = state.units[other]
            if unit.awaited and unit.asked == number:
                unit.awaited = 0
                _skip(state, other)
            if unit.is_idle and self.left:
                _add_between(state, other, seconds - unit.free_s)
                unit.free_s = unit.loaded_s = seconds
                unit.ahead = _draw(state, unit)
                _begin_step(state, other)

    def _join(self, seconds: float) -> None:
        """Add a unit, which enters when it has the weights of another."""
        state, number = self.state, len(self.state.units)
        self.outcome.num_joined += 1
        state.sums.append(Sums())
        begin_s = seconds + self.cluster.links.outer.seconds(self.cluster.model_bytes)
        state.units.append(Unit(free_s=begin_s, node=node_of(state.setup, self.cluster, number)))
        _add_between(state, number, begin_s)
        _at(state, begin_s, ENTER, number, 0)

    def _renumber(self, live: list[int]) -> None:
        """Number the live units in their order."""
        self.live, self.state.counts.live = live, len(live)
        for place, number in enumerate(live):
            self.state.units[number].place = place

    def _start_again(self, seconds: float) -> None:
        """Restart all units from the last complete checkpoint after a loss."""
        state, scenario, outcome = self.state, self.cluster.scenario, self.outcome
        units, counts = state.units, state.counts
        resumed_s = seconds + scenario.distributed.timeout_s + scenario.faults.restart_s
        in_hand = [left for unit in units for left in (unit.round, unit.ahead) if left != NONE and not unit.is_idle]
        trained = min(in_hand, default=counts.rounds)
        cut, cut_s = [one for one in self.cuts if one[0] <= trained][-1]
        outcome.num_losses += 1
        outcome.num_repeated += counts.rounds - cut - sum(number >= cut for number in in_hand)
        outcome.lost_s += seconds - cut_s
        counts.rounds, counts.done, self.cuts = cut, 0, [(cut, resumed_s)]
        state.events.clear()
        for links in (state.out_s, state.in_s):
            links[:] = [0.0] * len(links)
        for number, unit in enumerate(units):
            kept = {name: getattr(unit, name) for name in ("free_s", "num_steps", "node", "place")}
            units[number] = Unit(**kept, version=counts.version)
        _begin(state, max(resumed_s, *(unit.free_s for unit in units)))


def _run_compiled(setup: Setup, cluster: Cluster, partners: Partners, outcome: Outcome) -> Array:
    """Run the whole training compiled; return when each unit was through."""
    units = [Unit(node=node_of(setup, cluster, number), place=number) for number in range(setup.num_units)]
    units_U, counts = _structured(units), _structured([Counts(live=len(units))])
    sums_L = _structured([Sums()] * cluster.num_learners)
    partners_KU = np.array([partners(len(units), step + 1) for step in range(min(PERIOD, setup.num_rounds))])
    out_N, in_N = np.zeros((2, 1 + units[-1].node))
    with COMPILING:
        run = compiled(_run_whole, WATCHED=False)
    run(setup, partners_KU, units_U, counts, out_N, in_N, sums_L)
    for name in SUMS:
        setattr(outcome, name, np.array(sums_L[name]))
    return units_U["free_s"]


def _structured(values: Sequence[Any]) -> Any:
    """Return the numbers of dataclasses as a structured array with their names."""
    types_of = {"float": "f8", "int": "i8", "bool": "?"}
    names = [(one.name, types_of[str(one.type)]) for one in dataclasses.fields(values[0]) if str(one.type) in types_of]
    return np.array([tuple(getattr(value, name) for name, _ in names) for value in values], dtype=names)


# Events, in Python that numba compiles


def _run_whole(setup, partners, units, counts, out_s, in_s, sums) -> None:  # type: ignore[no-untyped-def]
    events = [(0.0, 0, 0, 0, 0)]
    events.pop()
    state = State(setup, partners, units, counts[0], out_s, in_s, sums, events, 0)
    _begin(state, setup.start_s)
    _run(state, np.inf)


def _run(state: State, until: float) -> None:
    """Run to the end, or to second `until`."""
    events = state.events
    while len(events) > 0 and events[0][0] < until:
        seconds, _, kind, number, other = heapq.heappop(events)
        if kind == GRADIENTS:
            _have_gradients(state, seconds, number)
        elif kind == SERVE:
            _serve(state, seconds, number, other)
        elif kind == ANSWER:
            _answer(state, seconds, number, other)
        elif kind == RECEIVE and not state.setup.to_servers and state.setup.host_s > 0:
            _at(state, seconds + state.setup.host_s, TAKE, number, other)
        elif kind in (RECEIVE, TAKE):
            _take(state, seconds, other, number)
        elif WATCHED:
            state.watch.happen(seconds, kind, number)


def _at(state: State, seconds: float, kind: int, number: int, other: int) -> None:
    heapq.heappush(state.events, (seconds, state.counts.events, kind, number, other))
    state.counts.events += 1


def _begin(state: State, seconds: float) -> None:
    """Begin the first step of all units together."""
    for number in range(len(state.units)):
        unit = state.units[number]
        if not unit.is_lost:
            _add_between(state, number, seconds - unit.free_s)
            unit.free_s = seconds
            unit.ahead = _draw(state, unit)
            unit.loaded_s = seconds + state.setup.loading_UK[number, unit.num_steps % PERIOD]
    for number in range(len(state.units)):
        if not state.units[number].is_lost:
            _begin_step(state, number)


def _draw(state: State, unit: Any) -> int:
    """Draw the next round for a unit, or NONE, as the work queue does."""
    setup, counts = state.setup, state.counts
    if WATCHED and state.watch.left:
        return int(state.watch.left.pop(0))
    if counts.rounds >= setup.num_rounds:
        return NONE
    if unit.before != NONE:
        in_last_epoch = unit.last // setup.rounds_of_epoch == (setup.num_rounds - 1) // setup.rounds_of_epoch
        if in_last_epoch and stop_of_others(unit.before, unit.last, counts.live) >= setup.num_rounds:
            counts.done += 1
            if counts.done < counts.live:
                return NONE
    unit.before = unit.last
    unit.last = counts.rounds
    counts.rounds += 1
    return int(unit.last)


def _add_between(state: State, number: int, seconds: float) -> None:
    size = state.setup.size
    for learner in range(number * size, (number + 1) * size):
        state.sums[learner].between_s += seconds


def _skip(state: State, number: int) -> None:
    """Skip an exchange of a unit."""
    size = state.setup.size
    state.units[number].is_skipped = True
    for learner in range(number * size, (number + 1) * size):
        state.sums[learner].skipped += 1


def _begin_step(state: State, number: int) -> None:
    """Save if it is due, then begin the next step of a free unit, if a round is left."""
    setup, unit = state.setup, state.units[number]
    unit.round = unit.ahead
    unit.ahead = NONE
    unit.is_idle = unit.round == NONE
    if unit.is_idle:
        return
    if unit.num_steps > 0:
        drawn = unit.last if unit.before == NONE else unit.before
        epoch = unit.round // setup.rounds_of_epoch
        epoch_begins = epoch > drawn // setup.rounds_of_epoch
        if epoch_begins or (setup.every_steps > 0 and unit.num_steps % setup.every_steps == 0):
            if WATCHED:
                state.watch.save(number, epoch if epoch_begins else NONE)
            unit.free_s += setup.checkpoint_s
            _add_between(state, number, setup.checkpoint_s)
    unit.begin_s = max(unit.free_s, unit.loaded_s)
    unit.data_s = unit.begin_s - unit.free_s
    unit.ahead = _draw(state, unit)
    span_s = setup.span_UK[number, unit.num_steps % PERIOD]
    unit.num_steps += 1
    unit.loaded_s = unit.begin_s + setup.loading_UK[number, unit.num_steps % PERIOD]
    if WATCHED:
        state.watch.begin(number)
    _at(state, unit.begin_s + span_s, GRADIENTS, number, 0)


def _have_gradients(state: State, seconds: float, number: int) -> None:
    setup, unit = state.setup, state.units[number]
    if unit.is_lost:
        return
    if setup.to_servers:  # server s is beside learner s
        unit.is_waiting = True
        unit.sent_s = seconds
        unit.awaited = setup.num_parts
        for server in range(setup.num_parts):
            _transmit(state, seconds, number, server, SERVE)
        return
    seconds += setup.tail_s
    if setup.is_pairs and unit.awaited > 0:
        unit.is_waiting = True
        unit.sent_s = seconds
        return
    if setup.counts_steps:
        _count_step(state, unit)
    _end_step(state, seconds, number, 0.0)


def _end_step(state: State, seconds: float, number: int, waited_s: float) -> None:
    """End the step of a unit; only its exchange takes the thread after `seconds`."""
    setup, unit = state.setup, state.units[number]
    if WATCHED:
        state.watch.update(seconds, number)
        partners, num_skipped = list(unit.partners), int(unit.is_skipped)
        unit.partners.clear()
        unit.is_skipped = False
    end_s = seconds + setup.comm_s
    staleness = unit.num_changes
    unit.num_changes = 0
    num_bytes = int(setup.inner_bytes + _send(state, end_s, number) / setup.size)
    first, column = number * setup.size, (unit.num_steps - 1) % PERIOD
    slowest = first  # whom the learners of the unit wait for
    for learner in range(first + 1, first + setup.size):
        if setup.compute_LK[learner, column] > setup.compute_LK[slowest, column]:
            slowest = learner
    place = unit.round % setup.rounds_of_epoch * setup.size
    for learner in range(first, first + setup.size):
        sums, computed_s = state.sums[learner], setup.compute_LK[learner, column]
        compute_s = computed_s + setup.update_s
        wait_s = waited_s
        if setup.size > 1:
            state.sums[slowest].blamed_s += setup.compute_LK[slowest, column] - computed_s
            wait_s = seconds - unit.begin_s - compute_s
        if place + learner - first < setup.num_batches:
            sums.steps += 1
        sums.compute_s += compute_s
        sums.comm_s += setup.comm_s
        sums.wait_s += wait_s
        sums.data_s += unit.data_s
        sums.bytes += num_bytes
        sums.staleness += staleness
        if WATCHED:
            times = (end_s, learner, unit.begin_s, compute_s, setup.comm_s, wait_s, unit.data_s)
            state.watch.end(times, num_bytes + unit.answered_bytes, partners, num_skipped, staleness)
    unit.answered_bytes = 0
    unit.free_s = end_s
    _begin_step(state, number)


def _send(state: State, seconds: float, number: int) -> float:
    """Begin the exchange of a step, if there is one; return the bytes sent."""
    setup, unit = state.setup, state.units[number]
    if setup.to_servers:
        return float(setup.message_bytes)
    place = state.partners[(unit.num_steps - 1) % PERIOD, unit.place]
    if place in (NONE, unit.place):
        return 0.0
    if unit.awaited > 0:
        _skip(state, number)
        return 0.0
    partner = place
    if WATCHED:
        partner = state.watch.live[place]
        state.watch.log("send", seconds, number, partner)
    unit.awaited = 1
    unit.asked = partner
    _transmit(state, seconds + setup.host_s, number, partner, SERVE)
    return float(setup.message_bytes)


def _transmit(state: State, seconds: float, here: int, there: int, arrive: int) -> None:
    """Send a part of a message; event `arrive` happens on arrival."""
    setup, node, other = state.setup, state.units[here].node, state.units[there].node
    num_bytes = setup.message_bytes / setup.num_parts
    if node == other:  # each learner of a unit has a link of its own
        end_s = seconds + (setup.inner_latency_s + num_bytes / setup.size / setup.inner_rate)
    else:
        length_s = num_bytes / setup.outer_rate
        begin_s = max(seconds, state.out_s[node])
        state.out_s[node] = begin_s + length_s
        end_s = max(begin_s + setup.outer_latency_s, state.in_s[other]) + length_s
        state.in_s[other] = end_s
    _at(state, end_s, arrive, here, there)


def _serve(state: State, seconds: float, asking: int, number: int) -> None:
    """Answer a message, when those before it are answered."""
    unit = state.units[number]
    if unit.is_lost and not state.setup.to_servers:
        return
    unit.busy_s = max(seconds, unit.busy_s) + state.setup.host_s
    _at(state, unit.busy_s, ANSWER, asking, number)


def _answer(state: State, seconds: float, asking: int, number: int) -> None:
    setup, unit = state.setup, state.units[number]
    num_bytes = int(setup.message_bytes / setup.num_parts / setup.size)
    unit.answered_bytes += num_bytes
    for learner in range(number * setup.size, (number + 1) * setup.size):
        state.sums[learner].bytes += num_bytes
    if not setup.to_servers:
        unit.num_changes += 1
        if WATCHED:
            state.watch.log("answer", seconds, number, asking)
    else:
        if number == 0:
            _count_step(state, state.units[asking])
        if WATCHED:
            state.watch.log("push", seconds, asking, number)
    _transmit(state, seconds, number, asking, RECEIVE)


def _take(state: State, seconds: float, number: int, partner: int) -> None:
    """Take the answer of `partner`."""
    setup, unit = state.setup, state.units[number]
    if unit.is_lost or unit.awaited == 0:
        return
    unit.awaited -= 1
    if not setup.to_servers:
        unit.num_changes += 1
        for learner in range(number * setup.size, (number + 1) * setup.size):
            state.sums[learner].exchanges += 1
        if WATCHED:
            unit.partners.append(partner)
            state.watch.log("receive", seconds, number, partner)
    if unit.is_waiting and unit.awaited == 0:
        unit.is_waiting = False
        _end_step(state, seconds, number, seconds - unit.sent_s)


def _count_step(state: State, unit: Any) -> None:
    """Count the steps of others since the unit took its weights."""
    unit.num_changes = state.counts.version - unit.version
    state.counts.version += 1
    unit.version = state.counts.version
