"""Simulate strategies whose learners wait for no step of another, by events.

At the end of a step a group may send a message to another one or to the servers:

- gossip: to the partner of the step. The next step begins at once; without the answer to the last message none is
  sent (asrtool.distributed.strategies.gossip).
- pairs: from groups of even rank, which wait for the answer to their last message.
- servers: a gradient to each server; the next step begins after all answers.
- none and hogwild: nothing is sent.

A link takes one message at a time each way, in order; so do the answering thread of a group and a server. Events of
the same instant are in the order in which they were found, so a scenario gives the same twice.

The functions of events run as Python, or compiled by numba, to the same bits. Compiled functions have WATCHED false:
no log, losses and joins. Shapes: L learners, G groups, K steps.
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
from asrtool.predict.simulate.clients import NONE, Partners, Setup, make_partners, make_setup
from asrtool.predict.simulate.cluster import PERIOD, Cluster
from asrtool.predict.simulate.events import COUNTS, SUMS, Begin, Change, Emit, End, Outcome

Array = NDArray[Any]
WATCHED = True
COMPILING = threading.Lock()
MIN_ROUNDS = 20_000  # a shorter training runs in Python: loading the compiled events takes as long
GRADIENTS, SERVE, ANSWER, RECEIVE, TAKE, NOTICE_LOST, JOIN, ENTER = range(8)  # kinds of events


@dataclass
class Group:
    """State of a group: times in seconds, rounds of the queue, messages and weights."""

    free_s: float = 0.0  # end of its last step
    begin_s: float = 0.0  # time at which it had the batch of this step
    draw_s: float = 0.0  # it waited for the assignment of this batch, then for the batch
    data_s: float = 0.0
    drawn_s: float = 0.0  # time at which the next batch is assigned
    loaded_s: float = 0.0  # time at which the next batch is loaded
    sent_s: float = 0.0  # time at which it began to wait for answers
    busy_s: float = 0.0  # end of the work of its answering thread, or of the server beside it
    round: int = NONE  # round that it trains
    ahead: int = NONE  # the next one, which is being read
    before: int = NONE  # the last two rounds drawn
    last: int = NONE
    num_steps: int = 0
    num_changes: int = 0  # to its weights by others since its last step
    version: int = 0  # version of its weights, in steps of the first server, or of all (hogwild)
    awaited: int = 0  # answers to its messages
    receiver: int = NONE  # of these
    answered_bytes: int = 0  # sent in answers since its last step, by each of its learners
    is_waiting: bool = False
    is_skipped: bool = False  # its last step sent nothing, since an answer had not come
    is_lost: bool = False
    is_idle: bool = False
    node: int = 0
    place: int = NONE  # among the live groups
    partners: list[int] = field(default_factory=list)  # partners of exchanges since its last step, if watched


@dataclass
class Counts:
    """Counters of a training."""

    events: int = 0
    rounds: int = 0  # drawn
    done: int = 0  # groups that left the last rounds to others
    version: int = 0  # version of the weights of the first server, or of all
    live: int = 0  # groups that others do not count as lost


# Sums over the steps of a learner, as in Outcome.
Sums = dataclasses.make_dataclass(
    "Sums", [(name, "int", 0) if name in COUNTS else (name, "float", 0.0) for name in SUMS]
)


class State(NamedTuple):
    """State of a training.

    Compiled functions get structured arrays of groups, counts and sums.
    """

    setup: Setup
    partners: Any  # step, place -> place of the partner, or NONE
    groups: Any
    counts: Any
    out_s: Any  # end of the last transfer of the link of a node, each way
    in_s: Any
    sums: Any  # sums of learners
    events: list[tuple[float, int, int, int, int]]  # seconds, order, kind, group, other group
    watch: Any


def simulate_asynchronous(cluster: Cluster, strategy: str, settings: Any, emit: Emit | None = None) -> Outcome:
    """Run the whole training, compiled if it is long and nothing has to be watched."""
    setup = make_setup(cluster, strategy, settings)
    job, faults, saving = cluster.scenario.job, cluster.scenario.faults, cluster.scenario.saving
    partners = make_partners(strategy, settings, setup.num_groups, job.seed)
    outcome = Outcome(strategy, cluster.num_learners, cluster.num_batches * job.num_epochs, cluster.batch)
    watch = Watch(setup, cluster, partners, outcome, emit)
    is_plain = not (emit or faults.lost or faults.mtbf_h or faults.join_h)
    if is_plain and setup.num_rounds >= MIN_ROUNDS:
        free_G, sums_L = _run_compiled(watch.state, partners)
    else:
        watch.run(settings)
        free_G, sums_L = np.array([group.free_s for group in watch.state.groups]), _structured(watch.state.sums)
    for name in SUMS:
        setattr(outcome, name, np.array(sums_L[name]))
    evaluation_s = saving.evaluation_s / len(outcome.steps)
    outcome.seconds = float(max(free_G)) + saving.checkpoint_s + evaluation_s + saving.end_s
    outcome.between_s += outcome.seconds - np.repeat(free_G, setup.size)  # all wait for the last, and save together
    return outcome


class Watch:
    """A training in Python, with an event log, checkpoints, losses and joins."""

    def __init__(self, setup: Setup, cluster: Cluster, partners: Partners, outcome: Outcome, emit: Emit | None) -> None:
        self.cluster, self.outcome = cluster, outcome
        self.emit: Emit = emit or (lambda event: None)
        self.live = list(range(setup.num_groups))
        self.left: list[int] = []  # rounds that lost groups had drawn
        self.cuts = [0]  # the rounds before which checkpoints lie
        self.partners = functools.cache(partners)  # number of live groups, step -> partners
        size = setup.size
        groups = [Group(node=number * size // cluster.links.node_size, place=number) for number in self.live]
        num_nodes = 1 + groups[-1].node + len(cluster.scenario.faults.join_h)
        links, sums = ([0.0] * num_nodes, [0.0] * num_nodes), [Sums() for _ in range(cluster.num_learners)]
        self.state = State(setup, self, groups, Counts(live=len(groups)), *links, sums, [], self)

    def run(self, settings: Any) -> None:
        """Run the whole training."""
        state = self.state
        _begin(state, state.setup.start_s)
        if getattr(settings, "joinable", False):
            for at in sorted(self.cluster.scenario.faults.join_h):
                _at(state, 3600 * at, JOIN, 0, 0)
        for at, learner in chain(self.cluster.losses(), [(math.inf, 0)]):
            _run(state, at)
            if not state.events:
                break
            if getattr(settings, "survives", False):
                self._lose(at, learner // state.setup.size)
            else:
                self._start_again(at)

    def __getitem__(self, key: tuple[int, int]) -> int:
        """Return the place of the partner of a group at a place, after a step."""
        column, place = key
        return self.partners(len(self.live), column + 1)[place]

    def log(self, kind: str, seconds: float, number: int, *others: int) -> None:
        """Log an event of each learner of a group, with its counterpart in another."""
        size = self.state.setup.size
        for member in range(size):
            self.emit(Change(seconds, kind, number * size + member, *(other * size + member for other in others)))

    def begin(self, number: int) -> None:
        """Log the beginning of a step."""
        setup, group = self.state.setup, self.state.groups[number]
        epoch, place = divmod(group.round, setup.rounds_of_epoch)
        for member in range(setup.size):
            position = place * setup.size + member
            known = position if position < setup.num_batches else None
            self.emit(Begin(group.begin_s, number * setup.size + member, group.round, epoch, known))

    def update(self, seconds: float, number: int) -> None:
        """Log the optimizer's update of a learner."""
        if not self.state.setup.to_servers:
            self.log("update", seconds, number)
            if not self.state.setup.counts_steps:
                self.log("take", seconds, number)

    def end(self, times: Any, num_bytes: int, partners: list[int], num_skipped: int, staleness: int) -> None:
        """Log the end of a step with exchanges with `partners`; `times` begins an End."""
        size, learner = self.state.setup.size, times[1]
        ranks = tuple(group * size + learner % size for group in partners)
        self.emit(End._make((*times, num_bytes, ranks, num_skipped, staleness)))

    def save(self, number: int, epoch: int) -> None:
        """Make the first live group's checkpoint, at the start of `epoch` unless NONE."""
        if number == self.live[0]:
            counts, setup = self.state.counts, self.state.setup
            self.cuts.append(counts.rounds if epoch == NONE else epoch * setup.rounds_of_epoch)

    def handle(self, seconds: float, kind: int, number: int) -> None:
        """Handle the events of losses and joins."""
        state = self.state
        if kind == NOTICE_LOST:
            self._notice_lost(seconds, number)
        elif kind == JOIN:
            self._join(seconds)
        else:
            self._renumber([*self.live, number])
            group = state.groups[number]
            group.ahead = _draw(state, group)
            group.loaded_s = seconds + state.setup.loading_GK[number, 0]
            _begin_step(state, number)

    def _lose(self, seconds: float, number: int) -> None:
        """Lose a group, unless it is the last one; the others notice after the timeout."""
        groups = self.state.groups
        if groups[number].is_lost or sum(not group.is_lost for group in groups) == 1:
            return
        groups[number].is_lost = True
        self.outcome.num_losses += 1
        _at(self.state, seconds + self.cluster.scenario.distributed.timeout_s, NOTICE_LOST, number, 0)

    def _notice_lost(self, seconds: float, number: int) -> None:
        state, lost = self.state, self.state.groups[number]
        self._renumber([group for group in self.live if group != number])
        self.left += [left for left in (lost.round, lost.ahead) if left != NONE]
        for other in self.live:
            group = state.groups[other]
            if group.awaited and group.receiver == number:
                group.awaited = 0
                _skip(state, other)
            if group.is_idle and self.left:
                _add_between(state, other, seconds - group.free_s)
                group.free_s = group.drawn_s = group.loaded_s = seconds
                group.ahead = _draw(state, group)
                _begin_step(state, other)

    def _join(self, seconds: float) -> None:
        """Add a group, which enters when it has the weights of another."""
        state, number = self.state, len(self.state.groups)
        self.outcome.num_joined += 1
        state.sums.append(Sums())
        link = self.cluster.links.outer
        begin_s = seconds + (link.latency_s + self.cluster.model_bytes / link.bytes_per_s)
        node = self.cluster.links.num_nodes(self.cluster.num_learners) + number - state.setup.num_groups  # its own node
        state.groups.append(Group(free_s=begin_s, node=node))
        _add_between(state, number, begin_s)
        _at(state, begin_s, ENTER, number, 0)

    def _renumber(self, live: list[int]) -> None:
        """Number the live groups in their order."""
        self.live, self.state.counts.live = live, len(live)
        for place, number in enumerate(live):
            self.state.groups[number].place = place

    def _start_again(self, seconds: float) -> None:
        """Restart all groups from the last complete checkpoint after a loss."""
        state, scenario, outcome = self.state, self.cluster.scenario, self.outcome
        groups, counts = state.groups, state.counts
        resumed_s = seconds + scenario.distributed.timeout_s + scenario.faults.restart_s
        in_use = [number for group in groups if not group.is_idle for number in (group.round, group.ahead)]
        in_hand = [number for number in in_use if number != NONE]
        trained = min(in_hand, default=counts.rounds)
        cut = [cut for cut in self.cuts if cut <= trained][-1]
        outcome.num_losses += 1
        outcome.num_repeated += counts.rounds - cut - sum(number >= cut for number in in_hand)
        counts.rounds, counts.done, self.cuts = cut, 0, [cut]
        state.events.clear()
        for links in (state.out_s, state.in_s):
            links[:] = [0.0] * len(links)
        for number, group in enumerate(groups):
            kept = {name: getattr(group, name) for name in ("free_s", "num_steps", "node", "place")}
            groups[number] = Group(**kept, version=counts.version)
        _begin(state, max(resumed_s, *(group.free_s for group in groups)))


def _run_compiled(state: State, partners: Partners) -> tuple[Array, Any]:
    """Run all compiled; return the end of each group, and the sums."""
    groups_G, counts, sums_L = (_structured(held) for held in (state.groups, [state.counts], state.sums))
    num_groups, num_steps = len(groups_G), min(PERIOD, state.setup.num_rounds)
    partners_KG = np.array([partners(num_groups, step + 1) for step in range(num_steps)])
    with COMPILING:
        run = compiled(_run_whole, WATCHED=False)
    run(state.setup, partners_KG, groups_G, counts, np.array(state.out_s), np.array(state.in_s), sums_L)
    return groups_G["free_s"], sums_L


def _structured(values: Sequence[Any]) -> Any:
    """Return the numbers of dataclasses as a structured array with their names."""
    types_of = {"float": "f8", "int": "i8", "bool": "?"}
    names = [(one.name, types_of[str(one.type)]) for one in dataclasses.fields(values[0]) if str(one.type) in types_of]
    return np.array([tuple(getattr(value, name) for name, _ in names) for value in values], dtype=names)


# Events, in Python that numba compiles


def _run_whole(setup, partners, groups, counts, out_s, in_s, sums) -> None:  # type: ignore[no-untyped-def]
    events = [(0.0, 0, 0, 0, 0)]
    events.pop()
    state = State(setup, partners, groups, counts[0], out_s, in_s, sums, events, 0)
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
            state.watch.handle(seconds, kind, number)


def _at(state: State, seconds: float, kind: int, number: int, other: int) -> None:
    heapq.heappush(state.events, (seconds, state.counts.events, kind, number, other))
    state.counts.events += 1


def _begin(state: State, seconds: float) -> None:
    """Begin the first step of all groups together."""
    for number in range(len(state.groups)):
        group = state.groups[number]
        if not group.is_lost:
            _add_between(state, number, seconds - group.free_s)
            group.free_s = seconds
            group.ahead = _draw(state, group)
            group.loaded_s = seconds + state.setup.loading_GK[number, group.num_steps % PERIOD]
    for number in range(len(state.groups)):
        if not state.groups[number].is_lost:
            _begin_step(state, number)


def _draw(state: State, group: Any) -> int:
    """Draw the next round for a group, or NONE, as the work queue does."""
    setup, counts = state.setup, state.counts
    if WATCHED and state.watch.left:
        return int(state.watch.left.pop(0))
    if counts.rounds >= setup.num_rounds:
        return NONE
    if group.before != NONE:
        in_last_epoch = group.last // setup.rounds_of_epoch == (setup.num_rounds - 1) // setup.rounds_of_epoch
        if in_last_epoch and stop_of_others(group.before, group.last, counts.live) >= setup.num_rounds:
            counts.done += 1
            if counts.done < counts.live:
                return NONE
    group.before = group.last
    group.last = counts.rounds
    counts.rounds += 1
    return int(group.last)


def _add_between(state: State, number: int, seconds: float) -> None:
    size = state.setup.size
    for learner in range(number * size, (number + 1) * size):
        state.sums[learner].between_s += seconds


def _skip(state: State, number: int) -> None:
    """Skip an exchange of a group."""
    size = state.setup.size
    state.groups[number].is_skipped = True
    for learner in range(number * size, (number + 1) * size):
        state.sums[learner].skipped += 1


def _begin_step(state: State, number: int) -> None:
    """Save if due, then begin the next step of a free group, if a round is left."""
    setup, group = state.setup, state.groups[number]
    group.round = group.ahead
    group.ahead = NONE
    group.is_idle = group.round == NONE
    if group.is_idle:
        return
    if group.num_steps > 0:
        drawn = group.last if group.before == NONE else group.before
        epoch = group.round // setup.rounds_of_epoch
        epoch_begins = epoch > drawn // setup.rounds_of_epoch
        if epoch_begins or (setup.every_steps > 0 and group.num_steps % setup.every_steps == 0):
            if WATCHED:
                state.watch.save(number, epoch if epoch_begins else NONE)
            group.free_s += setup.checkpoint_s
            _add_between(state, number, setup.checkpoint_s)
    group.begin_s = max(group.free_s, group.loaded_s)
    group.draw_s = max(group.drawn_s - group.free_s, 0.0)
    group.data_s = group.begin_s - group.free_s - group.draw_s
    group.ahead = _draw(state, group)
    span_s = setup.span_GK[number, group.num_steps % PERIOD]
    group.num_steps += 1
    # Of several learners the first begins, and draws, while the others wait for what it drew before.
    group.drawn_s = (group.begin_s if setup.size == 1 else group.free_s) + setup.draw_G[number]
    group.loaded_s = max(group.begin_s, group.drawn_s) + setup.loading_GK[number, group.num_steps % PERIOD]
    if WATCHED:
        state.watch.begin(number)
    _at(state, group.begin_s + span_s, GRADIENTS, number, 0)


def _have_gradients(state: State, seconds: float, number: int) -> None:
    setup, group = state.setup, state.groups[number]
    if group.is_lost:
        return
    if setup.to_servers:  # server s is beside learner s
        group.is_waiting = True
        group.sent_s = seconds
        group.awaited = setup.num_parts
        for server in range(setup.num_parts):
            _transmit(state, seconds, number, server, SERVE)
        return
    seconds += setup.tail_s
    if setup.is_pairs and group.awaited > 0:
        group.is_waiting = True
        group.sent_s = seconds
        return
    if setup.counts_steps:
        _count_step(state, group)
    _end_step(state, seconds, number, 0.0)


def _end_step(state: State, seconds: float, number: int, waited_s: float) -> None:
    """End the step of a group; only its exchange takes the thread after `seconds`."""
    setup, group = state.setup, state.groups[number]
    if WATCHED:
        state.watch.update(seconds, number)
        partners, num_skipped = list(group.partners), int(group.is_skipped)
        group.partners.clear()
        group.is_skipped = False
    end_s = seconds + setup.comm_s
    staleness = group.num_changes
    group.num_changes = 0
    num_bytes = int(setup.inner_bytes + _send(state, end_s, number) / setup.size)
    first, column = number * setup.size, (group.num_steps - 1) % PERIOD
    slowest = first  # whom the learners of the group wait for
    for learner in range(first + 1, first + setup.size):
        if setup.compute_LK[learner, column] > setup.compute_LK[slowest, column]:
            slowest = learner
    place = group.round % setup.rounds_of_epoch * setup.size
    for learner in range(first, first + setup.size):
        sums, computed_s = state.sums[learner], setup.compute_LK[learner, column]
        compute_s = computed_s + setup.update_s
        wait_s = group.draw_s + waited_s
        if setup.size > 1:
            state.sums[slowest].blamed_s += setup.compute_LK[slowest, column] - computed_s
            wait_s = group.draw_s + seconds - group.begin_s - compute_s
        if place + learner - first < setup.num_batches:
            sums.steps += 1
        sums.compute_s += compute_s
        sums.comm_s += setup.comm_s
        sums.wait_s += wait_s
        sums.data_s += group.data_s
        sums.bytes += num_bytes
        sums.staleness += staleness
        if WATCHED:
            times = (end_s, learner, group.begin_s, compute_s, setup.comm_s, wait_s, group.data_s)
            state.watch.end(times, num_bytes + group.answered_bytes, partners, num_skipped, staleness)
    group.answered_bytes = 0
    group.free_s = end_s
    _begin_step(state, number)


def _send(state: State, seconds: float, number: int) -> float:
    """Begin the exchange of a step, if there is one; return the bytes sent."""
    setup, group = state.setup, state.groups[number]
    if setup.to_servers:
        return float(setup.message_bytes)
    place = state.partners[(group.num_steps - 1) % PERIOD, group.place]
    if place in (NONE, group.place):
        return 0.0
    if group.awaited > 0:
        _skip(state, number)
        return 0.0
    partner = place
    if WATCHED:
        partner = state.watch.live[place]
        state.watch.log("send", seconds, number, partner)
    group.awaited = 1
    group.receiver = partner
    _transmit(state, seconds + setup.host_s, number, partner, SERVE)
    return float(setup.message_bytes)


def _transmit(state: State, seconds: float, here: int, there: int, arrive: int) -> None:
    """Send a part of a message; event `arrive` happens on arrival."""
    setup, node, other = state.setup, state.groups[here].node, state.groups[there].node
    num_bytes = setup.message_bytes / setup.num_parts
    if node == other:  # each learner of a group has a link of its own
        end_s = seconds + (setup.inner_latency_s + num_bytes / setup.size / setup.inner_rate)
    else:
        length_s = num_bytes / setup.outer_rate
        begin_s = max(seconds, state.out_s[node])
        state.out_s[node] = begin_s + length_s
        end_s = max(begin_s + setup.outer_latency_s, state.in_s[other]) + length_s
        state.in_s[other] = end_s
    _at(state, end_s, arrive, here, there)


def _serve(state: State, seconds: float, asking: int, number: int) -> None:
    """Answer a message, after those before it."""
    group = state.groups[number]
    if group.is_lost and not state.setup.to_servers:
        return
    group.busy_s = max(seconds, group.busy_s) + state.setup.host_s
    _at(state, group.busy_s, ANSWER, asking, number)


def _answer(state: State, seconds: float, asking: int, number: int) -> None:
    setup, group = state.setup, state.groups[number]
    num_bytes = int(setup.message_bytes / setup.num_parts / setup.size)
    group.answered_bytes += num_bytes
    for learner in range(number * setup.size, (number + 1) * setup.size):
        state.sums[learner].bytes += num_bytes
    if not setup.to_servers:
        group.num_changes += 1
        if WATCHED:
            state.watch.log("answer", seconds, number, asking)
    else:
        if number == 0:
            _count_step(state, state.groups[asking])
        if WATCHED:
            state.watch.log("push", seconds, asking, number)
    _transmit(state, seconds, number, asking, RECEIVE)


def _take(state: State, seconds: float, number: int, partner: int) -> None:
    """Take the answer of `partner`."""
    setup, group = state.setup, state.groups[number]
    if group.is_lost or group.awaited == 0:
        return
    group.awaited -= 1
    if not setup.to_servers:
        group.num_changes += 1
        for learner in range(number * setup.size, (number + 1) * setup.size):
            state.sums[learner].exchanges += 1
        if WATCHED:
            group.partners.append(partner)
            state.watch.log("receive", seconds, number, partner)
    if group.is_waiting and group.awaited == 0:
        group.is_waiting = False
        _end_step(state, seconds, number, seconds - group.sent_s)


def _count_step(state: State, group: Any) -> None:
    """Count the steps of others since the group took its weights."""
    group.num_changes = state.counts.version - group.version
    state.counts.version += 1
    group.version = state.counts.version
