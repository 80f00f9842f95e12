"""Simulate strategies whose learners wait for no step of another, by events.

At the end of a step a unit may send a message to another one or to the servers:

- gossip: to the partner of the step. The next step begins at once; without the answer to the last message none is
  sent (asrtool.distributed.strategies.gossip).
- pairs: from units of even rank, which wait for the answer to their last message.
- servers: a gradient to each server; the next step begins after all answers.
- none and hogwild: nothing is sent.

A link takes one message at a time each way, in order; so do the answering thread of a unit and a server. Events of
the same instant are in the order in which they were found, so a scenario gives the same twice.

The functions of events run as Python, or compiled by numba (extra `simulate`), to the same bits. Compiled functions
have WATCHED false: no log, slow phases, losses and joins. Shapes: L learners, U units, K steps, N nodes.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import importlib.util
import math
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asrtool.distributed.work.work_queue import stop_of_others
from asrtool.predict.simulate.cluster import PERIOD, Cluster, Floats
from asrtool.predict.simulate.events import Answer, Begin, Emit, End, Push, Receive, Send, Take, Update
from asrtool.predict.simulate.outcome import Outcome
from asrtool.predict.simulate.queue_clients import GOSSIP, NONE, NOTHING, PAIRS, SERVERS, Units, make_units

WATCHED = True
MIN_ROUNDS = 20_000  # of a training; to load the compiled events takes as long as fewer events in Python
GRADIENTS, SERVE, ANSWER, RECEIVE, TAKE, KNOW_LOST, JOIN, ENTER = range(8)  # kinds of events

Array = NDArray[Any]


@dataclass
class Unit:
    """State of a unit: times in seconds, rounds of the queue, messages and weights."""

    free_s: float = 0.0  # when its last step ended
    begin_s: float = 0.0  # when it had the batch of this one
    span_s: float = 0.0  # of its gradients
    data_s: float = 0.0
    loaded_s: float = 0.0  # when the next batch is there
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


@dataclass
class Sums:
    """Sums over the steps of a learner, as in Outcome."""

    compute_s: float = 0.0
    comm_s: float = 0.0
    wait_s: float = 0.0
    data_s: float = 0.0
    between_s: float = 0.0
    blamed_s: float = 0.0
    factor: float = 1.0  # of its slow phase in this step; no sum
    steps: int = 0
    bytes: int = 0
    staleness: int = 0
    exchanges: int = 0
    skipped: int = 0


TYPES = {"float": "f8", "int": "i8", "bool": "?"}
UNIT, COUNTS, SUMS = (
    np.dtype([(one.name, TYPES[str(one.type)]) for one in dataclasses.fields(kind) if str(one.type) in TYPES])
    for kind in (Unit, Counts, Sums)
)


class Given(NamedTuple):
    """Numbers of a training that do not change."""

    to_servers: bool
    is_pairs: bool
    counts_steps: bool  # staleness counts the steps of all (hogwild)
    num_units: int
    num_parts: int  # of a message, one for each server
    size: int
    message_bytes: float
    inner_bytes: float
    outer_rate: float
    outer_latency_s: float
    inner_rate: float
    inner_latency_s: float
    host_s: float
    tail_s: float
    comm_s: float
    update_s: float
    start_s: float
    checkpoint_s: float
    num_batches: int  # of an epoch
    num_rounds: int
    rounds_of_epoch: int
    every_steps: int


class State(NamedTuple):
    """State of a training; compiled functions get arrays of UNIT, COUNTS and SUMS."""

    given: Given
    span_UK: Array
    loading_UK: Array
    compute_LK: Array
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
    units = make_units(cluster, strategy, settings)
    outcome = Outcome.empty(strategy, cluster.num_learners)
    given, scenario = _given(units, strategy), cluster.scenario
    faults, num_units = scenario.faults, units.num_units
    is_plain = not (emit or faults.lost or faults.mtbf_h or faults.join_h or scenario.slow.phase_every_h)
    loading_UK = np.zeros_like(units.span_UK) if units.loading_UK is None else units.loading_UK
    span_UK, loading_UK, compute_LK = map(np.ascontiguousarray, (units.span_UK, loading_UK, cluster.compute_LK))
    nodes = [units.node(unit) for unit in range(num_units)]
    num_nodes = 1 + nodes[-1] + len(faults.join_h)
    if is_plain and given.num_rounds >= MIN_ROUNDS and importlib.util.find_spec("numba"):
        partners, num_drawn = Partners(units), min(PERIOD, given.num_rounds)
        partners_KU = np.array([partners.after(step) for step in range(num_drawn)])
        units_U, counts = np.zeros(num_units, UNIT), np.zeros(1, COUNTS)
        sums_L = np.zeros(cluster.num_learners, SUMS)
        for name in ("round", "ahead", "before", "last", "asked"):
            units_U[name] = NONE
        units_U["node"], units_U["place"], sums_L["factor"] = nodes, np.arange(num_units), 1.0
        out_N, in_N = np.zeros((2, num_nodes))
        _compiled()(given, span_UK, loading_UK, compute_LK, partners_KU, units_U, counts, out_N, in_N, sums_L)
        outcome.add({name: sums_L[name] for name in SUMS.names or ()})
        end_together(units, outcome, units_U["free_s"])
        return outcome
    state = State(
        given=given,
        span_UK=span_UK,
        loading_UK=loading_UK,
        compute_LK=compute_LK,
        partners=Partners(units),
        units=[Unit(node=node, place=place) for place, node in enumerate(nodes)],
        counts=Counts(live=num_units),
        out_s=[0.0] * num_nodes,
        in_s=[0.0] * num_nodes,
        sums=[Sums() for _ in range(cluster.num_learners)],
        events=[],
        watch=Watch(units, outcome, emit),
    )
    _begin(state, given.start_s)
    if units.joinable:
        for at in sorted(faults.join_h):
            _at(state, 3600 * at, JOIN, 0, 0)
    for at, learner in chain(cluster.losses(), [(math.inf, 0)]):
        _run(state, at)
        if not state.events:
            break
        if units.survives:
            state.watch.lose(state, at, learner // units.size)
        else:
            state.watch.start_again(state, at)
    outcome.add({name: [getattr(one, name) for one in state.sums] for name in SUMS.names or ()})
    end_together(units, outcome, [unit.free_s for unit in state.units])
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


def _given(units: Units, strategy: str) -> Given:
    cluster, links, scenario = units.cluster, units.cluster.links, units.cluster.scenario
    num_parts = max(1, units.num_servers)
    return Given(
        to_servers=units.exchange == SERVERS,
        is_pairs=units.exchange == PAIRS,
        counts_steps=strategy == "hogwild",
        num_units=units.num_units,
        num_parts=num_parts,
        size=units.size,
        message_bytes=float(units.message_bytes),
        inner_bytes=float(units.inner_bytes),
        outer_rate=float(links.outer.bytes_per_s),
        outer_latency_s=float(links.outer.latency_s),
        inner_rate=float(links.inner.bytes_per_s),
        inner_latency_s=float(links.inner.latency_s),
        host_s=float(cluster.host_s(units.message_bytes / num_parts / units.size)),
        tail_s=float(units.tail_s),
        comm_s=float(units.comm_s),
        update_s=float(cluster.update_s * (units.exchange != SERVERS)),
        start_s=float(scenario.saving.start_s),
        checkpoint_s=float(scenario.saving.checkpoint_s),
        num_batches=cluster.num_batches,
        num_rounds=units.rounds_of_epoch * scenario.job.num_epochs,
        rounds_of_epoch=units.rounds_of_epoch,
        every_steps=scenario.saving.every_steps,
    )


class Partners:
    """Partners of the live units after each step, computed when they are read."""

    def __init__(self, units: Units) -> None:
        self.units = units
        self.num_live = units.num_units
        self.found: dict[tuple[int, int], list[int]] = {}

    def after(self, column: int) -> list[int]:
        """Return each unit's partner place after drawn step `column`; NONE: no exchange."""
        key = self.num_live, column
        if key not in self.found:
            places: list[int | None] = [None] * self.num_live
            if self.units.exchange in (GOSSIP, PAIRS):
                places = self.units.partners(self.num_live, column + 1, self.units.cluster.scenario.job.seed)
            self.found[key] = [NONE if place is None else place for place in places]
        return self.found[key]

    def __getitem__(self, place: tuple[int, int]) -> int:
        return self.after(place[0])[place[1]]


class Watch:
    """Event log, slow phases, checkpoints, losses and joins, which are not compiled."""

    def __init__(self, units: Units, outcome: Outcome, emit: Emit | None) -> None:
        self.units = units
        self.outcome = outcome
        self.emit = emit
        self.phases = units.cluster.phases()
        self.live = list(range(units.num_units))
        self.left: list[int] = []  # rounds that lost units had drawn
        self.cuts = [(0, 0.0)]  # the rounds before which checkpoints lie, and their seconds

    def begin(self, state: State, number: int) -> None:
        """Log the beginning of a step, and find out how long its slow phases make it."""
        unit, members, given = state.units[number], self.units.members(number), state.given
        if self.phases:
            factors = [self.phases.factor(learner, unit.begin_s) for learner in members]
            for learner, factor in zip(members, factors, strict=True):
                state.sums[learner].factor = factor
            unit.span_s = self.units.span_s(number, (unit.num_steps - 1) % PERIOD, factors)
        if self.emit:
            epoch, place = divmod(unit.round, given.rounds_of_epoch)
            for position, learner in enumerate(members, place * given.size):
                known = position if position < given.num_batches else None
                self.emit(Begin(unit.begin_s, learner, unit.round, epoch, known))

    def update(self, seconds: float, number: int) -> None:
        """Log the optimizer's update."""
        if self.emit and self.units.exchange != SERVERS:
            kinds: list[Callable[..., Any]] = [Update]
            if self.units.exchange != NOTHING or self.outcome.strategy == "none":
                kinds.append(Take)
            for kind in kinds:
                for learner in self.units.members(number):
                    self.emit(kind(seconds, learner))

    def exchange(self, kind: Callable[..., Any], seconds: float, number: int, partner: int) -> None:
        """Log a part of an exchange."""
        if self.emit:
            size = self.units.size
            for member in range(size):
                self.emit(kind(seconds, number * size + member, partner * size + member))

    def push(self, seconds: float, number: int, server: int) -> None:
        """Log the step of a server."""
        if self.emit:
            self.emit(Push(seconds, number, server))

    def end(self, times: Any, num_bytes: int, units: list[int], num_skipped: int, staleness: int) -> None:
        """Log the end of a step, whose exchanges were with `units`; `times` begins an End."""
        if self.emit:
            size, learner = self.units.size, times[1]
            partners = tuple(unit * size + learner % size for unit in units)
            self.emit(End._make((*times, num_bytes, partners, num_skipped, staleness)))

    def save(self, state: State, number: int, epoch: int) -> None:
        """Make the checkpoint of the first live unit, at the start of `epoch` unless NONE."""
        if number == self.live[0]:
            cut = state.counts.rounds if epoch == NONE else epoch * state.given.rounds_of_epoch
            self.cuts.append((cut, state.units[number].free_s))

    def happen(self, state: State, seconds: float, kind: int, number: int) -> None:
        """Handle the events of losses and joins."""
        if kind == KNOW_LOST:
            self._know_lost(state, seconds, number)
        elif kind == JOIN:
            self._join(state, seconds)
        else:
            self._renumber(state, [*self.live, number])
            unit = state.units[number]
            unit.ahead = _draw(state, unit)
            unit.loaded_s = seconds + state.loading_UK[number, 0]
            _begin_step(state, number)

    def lose(self, state: State, seconds: float, number: int) -> None:
        """Lose a unit, unless it is the last one; the others know it after the timeout."""
        unit = state.units[number]
        if unit.is_lost or sum(not other.is_lost for other in state.units) == 1:
            return
        unit.is_lost = True
        self.outcome.num_losses += 1
        _at(state, seconds + self.units.cluster.scenario.distributed.timeout_s, KNOW_LOST, number, 0)

    def _know_lost(self, state: State, seconds: float, number: int) -> None:
        lost = state.units[number]
        self._renumber(state, [unit for unit in self.live if unit != number])
        self.left += [left for left in (lost.round, lost.ahead) if left != NONE]
        for other in self.live:
            unit = state.units[other]
            if unit.awaited and unit.asked == number:
                unit.awaited, unit.is_skipped = 0, True
                for learner in self.units.members(other):
                    state.sums[learner].skipped += 1
            if unit.is_idle and self.left:
                _add_between(state, other, seconds - unit.free_s)
                unit.free_s = unit.loaded_s = seconds
                unit.ahead = _draw(state, unit)
                _begin_step(state, other)

    def _join(self, state: State, seconds: float) -> None:
        """Add a unit, which enters when it has the weights of another."""
        number = len(state.units)
        self.outcome.num_joined += 1
        state.sums.append(Sums())
        begin_s = seconds + self.units.cluster.links.outer.seconds(self.units.cluster.model_bytes)
        state.units.append(Unit(free_s=begin_s, node=self.units.node(number)))
        _add_between(state, number, begin_s)
        _at(state, begin_s, ENTER, number, 0)

    def _renumber(self, state: State, live: list[int]) -> None:
        """Number the live units in their order."""
        self.live = live
        state.counts.live = state.partners.num_live = len(live)
        for place, number in enumerate(live):
            state.units[number].place = place

    def start_again(self, state: State, seconds: float) -> None:
        """Restart all units from the last complete checkpoint after a loss."""
        scenario, units, counts = self.units.cluster.scenario, state.units, state.counts
        resumed_s = seconds + scenario.distributed.timeout_s + scenario.faults.restart_s
        in_hand = [left for unit in units for left in (unit.round, unit.ahead) if left != NONE and not unit.is_idle]
        trained = min(in_hand, default=counts.rounds)
        cut, cut_s = [one for one in self.cuts if one[0] <= trained][-1]
        self.outcome.num_losses += 1
        self.outcome.num_repeated += counts.rounds - cut - sum(number >= cut for number in in_hand)
        self.outcome.lost_s += seconds - cut_s
        counts.rounds, counts.done, self.cuts = cut, 0, [(cut, resumed_s)]
        state.events.clear()
        for links in (state.out_s, state.in_s):
            links[:] = [0.0] * len(links)
        for number, unit in enumerate(units):
            kept = {name: getattr(unit, name) for name in ("free_s", "num_steps", "node", "place")}
            units[number] = Unit(**kept, version=counts.version)
        _begin(state, max(resumed_s, *(unit.free_s for unit in units)))


# Events, in Python that numba compiles


@functools.cache
def _compiled() -> Callable[..., None]:
    """Compile the functions below; compiled code is kept in __pycache__."""
    import numba

    names = {**globals(), "WATCHED": False, "stop_of_others": numba.njit(stop_of_others, cache=True)}
    functions = (
        _at, _draw, _add_between, _begin_step, _begin, _transmit, _send, _count_step, _end_step, _have_gradients,
        _serve, _answer, _take, _run, _run_whole,
    )  # fmt: skip
    for function in functions:
        code = types.FunctionType(function.__code__, names, function.__name__)
        code.__module__, code.__qualname__ = __name__, function.__qualname__
        names[function.__name__] = numba.njit(code, cache=True)
    compiled: Callable[..., None] = names["_run_whole"]
    return compiled


def _run_whole(  # type: ignore[no-untyped-def]
    given, span_UK, loading_UK, compute_LK, partners, units, counts, out_s, in_s, sums
) -> None:
    events = [(0.0, 0, 0, 0, 0)]
    events.pop()
    state = State(given, span_UK, loading_UK, compute_LK, partners, units, counts[0], out_s, in_s, sums, events, 0)
    state.counts.live = given.num_units
    _begin(state, given.start_s)
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
        elif kind == RECEIVE and not state.given.to_servers and state.given.host_s > 0:
            _at(state, seconds + state.given.host_s, TAKE, number, other)
        elif kind in (RECEIVE, TAKE):
            _take(state, seconds, other, number)
        elif WATCHED:
            state.watch.happen(state, seconds, kind, number)


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
            unit.loaded_s = seconds + state.loading_UK[number, unit.num_steps % PERIOD]
    for number in range(len(state.units)):
        if not state.units[number].is_lost:
            _begin_step(state, number)


def _draw(state: State, unit: Any) -> int:
    """Draw the next round for a unit, or NONE, as the work queue does."""
    given, counts = state.given, state.counts
    if WATCHED and state.watch.left:
        return int(state.watch.left.pop(0))
    if counts.rounds >= given.num_rounds:
        return NONE
    if unit.before != NONE:
        in_last_epoch = unit.last // given.rounds_of_epoch == (given.num_rounds - 1) // given.rounds_of_epoch
        if in_last_epoch and stop_of_others(unit.before, unit.last, counts.live) >= given.num_rounds:
            counts.done += 1
            if counts.done < counts.live:
                return NONE
    unit.before = unit.last
    unit.last = counts.rounds
    counts.rounds += 1
    return int(unit.last)


def _add_between(state: State, number: int, seconds: float) -> None:
    size = state.given.size
    for learner in range(number * size, (number + 1) * size):
        state.sums[learner].between_s += seconds


def _begin_step(state: State, number: int) -> None:
    """Save if it is due, then begin the next step of a free unit, if a round is left."""
    given, unit = state.given, state.units[number]
    unit.round = unit.ahead
    unit.ahead = NONE
    unit.is_idle = unit.round == NONE
    if unit.is_idle:
        return
    if unit.num_steps > 0:
        drawn = unit.last if unit.before == NONE else unit.before
        epoch = unit.round // given.rounds_of_epoch
        epoch_begins = epoch > drawn // given.rounds_of_epoch
        if epoch_begins or (given.every_steps > 0 and unit.num_steps % given.every_steps == 0):
            if WATCHED:
                state.watch.save(state, number, epoch if epoch_begins else NONE)
            unit.free_s += given.checkpoint_s
            _add_between(state, number, given.checkpoint_s)
    unit.begin_s = max(unit.free_s, unit.loaded_s)
    unit.data_s = unit.begin_s - unit.free_s
    unit.ahead = _draw(state, unit)
    unit.span_s = state.span_UK[number, unit.num_steps % PERIOD]
    unit.num_steps += 1
    unit.loaded_s = unit.begin_s + state.loading_UK[number, unit.num_steps % PERIOD]
    if WATCHED:
        state.watch.begin(state, number)
    _at(state, unit.begin_s + unit.span_s, GRADIENTS, number, 0)


def _have_gradients(state: State, seconds: float, number: int) -> None:
    given, unit = state.given, state.units[number]
    if unit.is_lost:
        return
    if given.to_servers:  # server s is beside learner s
        unit.is_waiting = True
        unit.sent_s = seconds
        unit.awaited = given.num_parts
        for server in range(given.num_parts):
            _transmit(state, seconds, number, server, SERVE)
        return
    seconds += given.tail_s
    if given.is_pairs and unit.awaited > 0:
        unit.is_waiting = True
        unit.sent_s = seconds
        return
    if given.counts_steps:
        _count_step(state, unit)
    _end_step(state, seconds, number, 0.0)


def _end_step(state: State, seconds: float, number: int, waited_s: float) -> None:
    """End the step of a unit; only its exchange takes the thread after `seconds`."""
    given, unit = state.given, state.units[number]
    if WATCHED:
        state.watch.update(seconds, number)
        partners, num_skipped = list(unit.partners), int(unit.is_skipped)
        unit.partners.clear()
        unit.is_skipped = False
    end_s = seconds + given.comm_s
    staleness = unit.num_changes
    unit.num_changes = 0
    num_bytes = int(given.inner_bytes + _send(state, end_s, number) / given.size)
    first, column = number * given.size, (unit.num_steps - 1) % PERIOD
    slowest, slowest_s = first, -1.0
    if given.size > 1:
        for learner in range(first, first + given.size):
            own_s = state.compute_LK[learner, column] * state.sums[learner].factor
            if own_s > slowest_s:
                slowest, slowest_s = learner, own_s
    place = unit.round % given.rounds_of_epoch * given.size
    for member in range(given.size):
        learner = first + member
        sums, computed_s = state.sums[learner], unit.span_s
        if given.size > 1:  # its learners wait for the slowest
            computed_s = state.compute_LK[learner, column] * state.sums[learner].factor
            state.sums[slowest].blamed_s += slowest_s - computed_s
        compute_s = computed_s + given.update_s
        wait_s = waited_s
        if given.size > 1:
            wait_s = seconds - unit.begin_s - compute_s
        if place + member < given.num_batches:
            sums.steps += 1
        sums.compute_s += compute_s
        sums.comm_s += given.comm_s
        sums.wait_s += wait_s
        sums.data_s += unit.data_s
        sums.bytes += num_bytes
        sums.staleness += staleness
        if WATCHED:
            times = (end_s, learner, unit.begin_s, compute_s, given.comm_s, wait_s, unit.data_s)
            state.watch.end(times, num_bytes + unit.answered_bytes, partners, num_skipped, staleness)
    unit.answered_bytes = 0
    unit.free_s = end_s
    _begin_step(state, number)


def _send(state: State, seconds: float, number: int) -> float:
    """Begin the exchange of a step, if there is one; return the bytes sent."""
    given, unit = state.given, state.units[number]
    if given.to_servers:
        return float(given.message_bytes)
    place = state.partners[(unit.num_steps - 1) % PERIOD, unit.place]
    if place in (NONE, unit.place):
        return 0.0
    if unit.awaited > 0:
        unit.is_skipped = True
        for learner in range(number * given.size, (number + 1) * given.size):
            state.sums[learner].skipped += 1
        return 0.0
    partner = place
    if WATCHED:
        partner = state.watch.live[place]
        state.watch.exchange(Send, seconds, number, partner)
    unit.awaited = 1
    unit.asked = partner
    _transmit(state, seconds + given.host_s, number, partner, SERVE)
    return float(given.message_bytes)


def _transmit(state: State, seconds: float, here: int, there: int, arrive: int) -> None:
    """Send a part of a message; event `arrive` happens on arrival."""
    given, node, other = state.given, state.units[here].node, state.units[there].node
    num_bytes = given.message_bytes / given.num_parts
    if node == other:  # each learner of a unit has a link of its own
        end_s = seconds + (given.inner_latency_s + num_bytes / given.size / given.inner_rate)
    else:
        length_s = num_bytes / given.outer_rate
        begin_s = max(seconds, state.out_s[node])
        state.out_s[node] = begin_s + length_s
        end_s = max(begin_s + given.outer_latency_s, state.in_s[other]) + length_s
        state.in_s[other] = end_s
    _at(state, end_s, arrive, here, there)


def _serve(state: State, seconds: float, asking: int, number: int) -> None:
    """Answer a message, when those before it are answered."""
    unit = state.units[number]
    if unit.is_lost and not state.given.to_servers:
        return
    unit.busy_s = max(seconds, unit.busy_s) + state.given.host_s
    _at(state, unit.busy_s, ANSWER, asking, number)


def _answer(state: State, seconds: float, asking: int, number: int) -> None:
    given, unit = state.given, state.units[number]
    num_bytes = int(given.message_bytes / given.num_parts / given.size)
    unit.answered_bytes += num_bytes
    for learner in range(number * given.size, (number + 1) * given.size):
        state.sums[learner].bytes += num_bytes
    if not given.to_servers:
        unit.num_changes += 1
        if WATCHED:
            state.watch.exchange(Answer, seconds, number, asking)
    else:
        if number == 0:
            _count_step(state, state.units[asking])
        if WATCHED:
            state.watch.push(seconds, asking, number)
    _transmit(state, seconds, number, asking, RECEIVE)


def _take(state: State, seconds: float, number: int, partner: int) -> None:
    """Take the answer of `partner`."""
    given, unit = state.given, state.units[number]
    if unit.is_lost or unit.awaited == 0:
        return
    unit.awaited -= 1
    if not given.to_servers:
        unit.num_changes += 1
        for learner in range(number * given.size, (number + 1) * given.size):
            state.sums[learner].exchanges += 1
        if WATCHED:
            unit.partners.append(partner)
            state.watch.exchange(Receive, seconds, number, partner)
    if unit.is_waiting and unit.awaited == 0:
        unit.is_waiting = False
        _end_step(state, seconds, number, seconds - unit.sent_s)


def _count_step(state: State, unit: Any) -> None:
    """Count the steps of others since the unit took its weights."""
    unit.num_changes = state.counts.version - unit.version
    state.counts.version += 1
    unit.version = state.counts.version
