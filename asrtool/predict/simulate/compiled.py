"""Events of asynchronous.py, compiled by numba (extra `simulate`).

A training without losses, joins, slow phases and an event log has the same events in the same order, so sums are the
same to rounding. Names are the ones of the methods there. Shapes: U units, K steps, N nodes, L learners.
"""

from __future__ import annotations

import functools
import heapq
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asrtool.distributed.work.work_queue import AHEAD, SLOW
from asrtool.predict.simulate.cluster import PERIOD, Floats
from asrtool.predict.simulate.outcome import Outcome
from asrtool.predict.simulate.queue_clients import GOSSIP, PAIRS, SERVERS, Units
from asrtool.predict.simulate.scenario import Scenario

MIN_ROUNDS = 20_000  # of a training; to load the compiled events takes as long as fewer events in Python
NONE = -1
GRADIENTS, SERVE, ANSWER, RECEIVE, TAKE = range(5)  # kinds of events
UNIT = np.dtype(
    [(name, "f8") for name in ("free_s", "begin_s", "span_s", "data_s", "loaded_s", "sent_s", "busy_s")]
    + [(name, "i8") for name in ("round", "ahead", "before", "last", "num_steps", "num_changes", "version", "awaited")]
    + [("is_waiting", "?")]
)
SUMS = np.dtype(
    [(name, "f8") for name in ("span_s", "data_s", "wait_s", "saved_s")]
    + [(name, "i8") for name in ("steps", "messages", "answers", "staleness", "exchanges", "skipped", "short")]
)
COUNTS = np.dtype([(name, "i8") for name in ("events", "rounds", "done", "version")])

Array = NDArray[Any]
Event = tuple[float, int, int, int, int]  # seconds, order, kind, unit, other unit


class Settings(NamedTuple):
    """Numbers of a training that do not change."""

    to_servers: bool
    is_pairs: bool
    counts_steps: bool  # whether staleness is in the steps of all (hogwild)
    num_units: int
    num_servers: int
    size: int
    message_bytes: float
    outer_rate: float
    outer_latency_s: float
    inner_rate: float
    inner_latency_s: float
    host_s: float
    tail_s: float
    comm_s: float
    start_s: float
    checkpoint_s: float
    num_rounds: int
    rounds_of_epoch: int
    every_steps: int
    slow: float
    ahead: float


class State(NamedTuple):
    """A training on its way."""

    given: Settings
    spans_UK: Array
    loads_UK: Array
    partners_KU: Array  # -1: no exchange after the step
    nodes_U: Array
    units_U: Array  # of UNIT
    sums_U: Array  # of SUMS
    out_N: Array  # until when the link of a node is busy
    in_N: Array
    counts: Array  # a single entry of COUNTS
    events: list[Event]


def fits(scenario: Scenario, num_rounds: int) -> bool:
    """Check whether compiled events can be used for a training, and save time."""
    faults, slow = scenario.faults, scenario.slow
    is_plain = not (faults.lost or faults.mtbf_h or faults.join_h or slow.phase_every_h)
    return is_plain and num_rounds >= MIN_ROUNDS and importlib.util.find_spec("numba") is not None


def run_compiled(units: Units, outcome: Outcome) -> Floats:
    """Run a whole training and add its sums to `outcome`.

    Returns (U) when each unit was through.
    """
    num_units, num_nodes = units.num_units, 1 + units.node(units.num_units - 1)
    spans_UK = np.ascontiguousarray(units.span_UK[:num_units])
    loading_UK = units.loading_UK
    loads_UK = np.zeros((num_units, PERIOD)) if loading_UK is None else np.ascontiguousarray(loading_UK[:num_units])
    nodes_U = np.array([units.node(unit) for unit in range(num_units)])
    units_U, sums_U = np.zeros(num_units, UNIT), np.zeros(num_units, SUMS)
    out_N, in_N, counts = np.zeros(num_nodes), np.zeros(num_nodes), np.zeros(1, COUNTS)
    settings = _settings(units, outcome.strategy)
    _compiled()(settings, spans_UK, loads_UK, _partners(units), nodes_U, units_U, sums_U, out_N, in_N, counts)
    _add(units, outcome, sums_U)
    free_U: Floats = units_U["free_s"]
    return free_U


@functools.cache
def _compiled() -> Callable[..., None]:
    """Compile the functions below, which call one another by their names.

    Compiled code is kept in __pycache__.
    """
    import numba

    for function in (_at, _draw, _begin_step, _transmit, _count_step, _end_step, _have_gradients, _answer, _take):
        globals()[function.__name__] = numba.njit(function, cache=True)
    compiled: Callable[..., None] = numba.njit(_run, cache=True)
    return compiled


def _settings(units: Units, strategy: str) -> Settings:
    scenario, links = units.cluster.scenario, units.cluster.links
    num_parts = max(1, units.num_servers)
    return Settings(
        to_servers=units.exchange == SERVERS,
        is_pairs=units.exchange == PAIRS,
        counts_steps=strategy == "hogwild",
        num_units=units.num_units,
        num_servers=units.num_servers,
        size=units.size,
        message_bytes=float(units.message_bytes),
        outer_rate=float(links.outer.bytes_per_s),
        outer_latency_s=float(links.outer.latency_s),
        inner_rate=float(links.inner.bytes_per_s),
        inner_latency_s=float(links.inner.latency_s),
        host_s=float(units.cluster.host_s(units.message_bytes / num_parts / units.size)),
        tail_s=float(units.tail_s),
        comm_s=float(units.comm_s),
        start_s=float(scenario.saving.start_s),
        checkpoint_s=float(scenario.saving.checkpoint_s),
        num_rounds=units.rounds_of_epoch * scenario.job.num_epochs,
        rounds_of_epoch=units.rounds_of_epoch,
        every_steps=scenario.saving.every_steps,
        slow=float(SLOW),
        ahead=float(AHEAD),
    )


def _partners(units: Units) -> Array:
    """Return the partner of each unit after each of its first steps, (K, U).

    -1 means that there is no exchange.
    """
    found = np.full((PERIOD, units.num_units), NONE)
    if units.exchange in (GOSSIP, PAIRS):
        seed = units.cluster.scenario.job.seed
        most = units.rounds_of_epoch * units.cluster.scenario.job.num_epochs
        for step in range(min(PERIOD, most)):
            partners = units.partners(units.num_units, step + 1, seed)
            found[step] = [NONE if place is None else place for place in partners]
    return found


def _add(units: Units, outcome: Outcome, sums_U: Array) -> None:
    size, cluster = units.size, units.cluster
    of_learner: dict[str, Any] = {name: np.repeat(sums_U[name], size) for name in SUMS.names or ()}
    steps_L = of_learner["steps"]
    update_s = cluster.update_s * (units.exchange != SERVERS)
    member_L = np.tile(np.arange(size), units.num_units)
    in_last_round = cluster.num_batches - (units.rounds_of_epoch - 1) * size
    compute_LK = cluster.compute_LK[: len(steps_L)]
    computed_L = (_times(steps_L) * compute_LK).sum(axis=1)
    outcome.steps += steps_L - of_learner["short"] * (member_L >= in_last_round)
    outcome.compute_s += computed_L + steps_L * update_s
    outcome.comm_s += steps_L * units.comm_s
    outcome.wait_s += of_learner["wait_s"]
    if size > 1:
        outcome.wait_s += of_learner["span_s"] - computed_L + steps_L * (units.tail_s - update_s)
        lack_UNK = compute_LK.reshape(units.num_units, size, PERIOD)
        lack_UK = (lack_UNK.max(axis=1, keepdims=True) - lack_UNK).sum(axis=1) * _times(sums_U["steps"])
        for unit, slowest_K in enumerate(lack_UNK.argmax(axis=1)):
            first = unit * size
            outcome.blamed_s[first : first + size] += np.bincount(slowest_K, lack_UK[unit], size)
    outcome.data_s += of_learner["data_s"]
    outcome.between_s += of_learner["saved_s"] + cluster.scenario.saving.start_s
    messages_L = of_learner["messages"] + of_learner["answers"] / max(1, units.num_servers)
    outcome.bytes += (steps_L * units.inner_bytes + messages_L * units.message_bytes / size).astype(np.int64)
    for name in ("staleness", "exchanges", "skipped"):
        getattr(outcome, name)[:] += of_learner[name]


def _times(steps: Array) -> Array:
    """(.., K) how often each of the drawn steps was made, of so many steps."""
    return (steps // PERIOD)[:, None] + (np.arange(PERIOD) < (steps % PERIOD)[:, None])


# Compiled functions


def _run(  # type: ignore[no-untyped-def]
    given, spans_UK, loads_UK, partners_KU, nodes_U, units_U, sums_U, out_N, in_N, counts
) -> None:
    events = [(0.0, 0, 0, 0, 0)]
    events.pop()
    state = State(given, spans_UK, loads_UK, partners_KU, nodes_U, units_U, sums_U, out_N, in_N, counts, events)
    for number in range(given.num_units):
        unit = units_U[number]
        unit.round = unit.ahead = unit.before = unit.last = NONE
        unit.free_s = given.start_s
        unit.ahead = _draw(state, unit)
        unit.loaded_s = given.start_s + loads_UK[number, 0]
    for number in range(given.num_units):
        _begin_step(state, number)
    while len(events) > 0:
        seconds, _, kind, number, other = heapq.heappop(events)
        if kind == GRADIENTS:
            _have_gradients(state, seconds, number)
        elif kind == SERVE:
            units_U[other].busy_s = max(seconds, units_U[other].busy_s) + given.host_s
            _at(state, units_U[other].busy_s, ANSWER, number, other)
        elif kind == ANSWER:
            _answer(state, seconds, number, other)
        elif kind == RECEIVE and not given.to_servers and given.host_s > 0:
            _at(state, seconds + given.host_s, TAKE, other, number)
        elif kind == RECEIVE:
            _take(state, seconds, other)
        else:
            _take(state, seconds, number)


def _at(state: State, seconds: float, kind: int, number: int, other: int) -> None:
    heapq.heappush(state.events, (seconds, state.counts[0].events, kind, number, other))
    state.counts[0].events += 1


def _draw(state: State, unit: Any) -> int:
    """Draw the next round for a unit, as the work queue does."""
    given, counts = state.given, state.counts[0]
    if counts.rounds >= given.num_rounds:
        return NONE
    if unit.before != NONE:
        per_step = unit.last - unit.before
        until = unit.last + per_step + given.ahead * (per_step - given.num_units)
        in_last_epoch = unit.last // given.rounds_of_epoch == (given.num_rounds - 1) // given.rounds_of_epoch
        if per_step > given.slow * given.num_units and until >= given.num_rounds and in_last_epoch:
            counts.done += 1
            if counts.done < given.num_units:
                return NONE
    unit.before = unit.last
    unit.last = counts.rounds
    counts.rounds += 1
    return int(unit.last)


def _begin_step(state: State, number: int) -> None:
    given, unit = state.given, state.units_U[number]
    unit.round = unit.ahead
    unit.ahead = NONE
    if unit.round == NONE:
        return
    if unit.num_steps > 0:
        drawn = unit.last if unit.before == NONE else unit.before
        epoch_begins = unit.round // given.rounds_of_epoch > drawn // given.rounds_of_epoch
        if epoch_begins or (given.every_steps > 0 and unit.num_steps % given.every_steps == 0):
            unit.free_s += given.checkpoint_s
            state.sums_U[number].saved_s += given.checkpoint_s
    unit.begin_s = max(unit.free_s, unit.loaded_s)
    unit.data_s = unit.begin_s - unit.free_s
    unit.ahead = _draw(state, unit)
    unit.span_s = state.spans_UK[number, unit.num_steps % PERIOD]
    unit.num_steps += 1
    unit.loaded_s = unit.begin_s + state.loads_UK[number, unit.num_steps % PERIOD]
    _at(state, unit.begin_s + unit.span_s, GRADIENTS, number, 0)


def _have_gradients(state: State, seconds: float, number: int) -> None:
    given, unit = state.given, state.units_U[number]
    if given.to_servers:
        unit.is_waiting = True
        unit.sent_s = seconds
        unit.awaited = given.num_servers
        for server in range(given.num_servers):
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
    given, unit, sums = state.given, state.units_U[number], state.sums_U[number]
    end_s = seconds + given.comm_s
    sums.staleness += unit.num_changes
    unit.num_changes = 0
    partner = state.partners_KU[(unit.num_steps - 1) % PERIOD, number]
    if given.to_servers:
        sums.messages += 1
    elif partner not in (NONE, number) and unit.awaited > 0:
        sums.skipped += 1
    elif partner not in (NONE, number):
        unit.awaited = 1
        sums.messages += 1
        _transmit(state, end_s + given.host_s, number, partner, SERVE)
    sums.steps += 1
    sums.short += unit.round % given.rounds_of_epoch == given.rounds_of_epoch - 1
    sums.span_s += unit.span_s
    sums.wait_s += waited_s
    sums.data_s += unit.data_s
    unit.free_s = end_s
    _begin_step(state, number)


def _transmit(state: State, seconds: float, here: int, there: int, arrive: int) -> None:
    given, node, other = state.given, state.nodes_U[here], state.nodes_U[there]
    num_bytes = given.message_bytes / max(1, given.num_servers)
    if node == other:
        end_s = seconds + given.inner_latency_s + num_bytes / given.size / given.inner_rate
    else:
        length_s = num_bytes / given.outer_rate
        begin_s = max(seconds, state.out_N[node])
        state.out_N[node] = begin_s + length_s
        end_s = max(begin_s + given.outer_latency_s, state.in_N[other]) + length_s
        state.in_N[other] = end_s
    _at(state, end_s, arrive, here, there)


def _answer(state: State, seconds: float, asking: int, number: int) -> None:
    if not state.given.to_servers:
        state.units_U[number].num_changes += 1
    elif number == 0:
        _count_step(state, state.units_U[asking])
    state.sums_U[number].answers += 1
    _transmit(state, seconds, number, asking, RECEIVE)


def _take(state: State, seconds: float, number: int) -> None:
    unit = state.units_U[number]
    unit.awaited -= 1
    if not state.given.to_servers:
        unit.num_changes += 1
        state.sums_U[number].exchanges += 1
    if unit.is_waiting and unit.awaited == 0:
        unit.is_waiting = False
        _end_step(state, seconds, number, seconds - unit.sent_s)


def _count_step(state: State, unit: Any) -> None:
    unit.num_changes = state.counts[0].version - unit.version
    state.counts[0].version += 1
    unit.version = state.counts[0].version
