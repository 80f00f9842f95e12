"""The compiled events, where they could be compiled and are all there is: `_events.cpp` does what asynchronous.py does.

Shapes: U units, K steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrtool.distributed.last_rounds import AHEAD, SLOW
from asrtool.simulate.cluster import PERIOD, Floats
from asrtool.simulate.outcome import Outcome
from asrtool.simulate.units import GOSSIP, NOTHING, PAIRS, SERVERS, Units

try:
    from asrtool.simulate import _events as compiled
except ImportError:  # no C++ compiler where asrtool was installed
    compiled = None  # type: ignore[assignment]

Numbers = NDArray[Any]
EXCHANGES = (NOTHING, GOSSIP, PAIRS, SERVERS)
SUMS = np.dtype(
    [
        (name, "f8")
        for name in (
            "free_s", "span_s", "data_s", "wait_s", "saved_s",
            "steps", "messages", "answers", "staleness", "exchanges", "skipped", "short",
        )
    ]
)  # fmt: skip


def fits(units: Units) -> bool:
    """Whether the compiled part knows all that happens in this training."""
    scenario = units.cluster.scenario
    faults, slow = scenario.faults, scenario.slow
    is_plain = not (faults.lost or faults.mtbf_h or faults.join_h or slow.phase_every_h)
    return compiled is not None and is_plain


def run_compiled(units: Units, outcome: Outcome) -> Floats:
    """The steps of the whole training, their sums added to `outcome`; (U) when each unit was through."""
    sums_U = np.zeros(units.num_units, SUMS)
    loading_UK = units.loading_UK
    loads = None if loading_UK is None else np.ascontiguousarray(loading_UK[: units.num_units])
    spans = np.ascontiguousarray(units.span_UK[: units.num_units])
    nodes = np.array([units.node(unit) for unit in range(units.num_units)], np.int32)
    compiled.run(_settings(units, outcome.strategy), spans, loads, _partners(units), nodes, sums_U)
    _add(units, outcome, sums_U)
    free_U: Floats = sums_U["free_s"]
    return free_U


def _settings(units: Units, strategy: str) -> tuple[float, ...]:
    cluster = units.cluster
    scenario, links = cluster.scenario, cluster.links
    num_parts = max(1, units.num_servers)
    rounds_of_epoch = units.rounds_of_epoch
    return (
        EXCHANGES.index(units.exchange), units.num_units, PERIOD, units.num_servers,
        float(units.message_bytes), float(units.size), links.outer.bytes_per_s, links.outer.latency_s,
        links.inner.bytes_per_s, links.inner.latency_s, cluster.host_s(units.message_bytes / num_parts / units.size),
        units.tail_s, units.comm_s, scenario.saving.start_s, scenario.saving.checkpoint_s,
        rounds_of_epoch * scenario.job.num_epochs, rounds_of_epoch, scenario.saving.every_steps,
        int(strategy == "hogwild"), float(SLOW), float(AHEAD),
    )  # fmt: skip


def _partners(units: Units) -> Numbers | None:
    """(K, U) the partner of each unit in the exchange behind each of its first steps; -1 is none."""
    if units.exchange not in (GOSSIP, PAIRS):
        return None
    seed = units.cluster.scenario.job.seed
    most = units.rounds_of_epoch * units.cluster.scenario.job.num_epochs
    found = np.full((PERIOD, units.num_units), -1, np.int32)
    for step in range(min(PERIOD, most)):
        found[step] = [-1 if place is None else place for place in units.partners(units.num_units, step + 1, seed)]
    return found


def _add(units: Units, outcome: Outcome, sums_U: Numbers) -> None:
    size, cluster = units.size, units.cluster
    of_learner: dict[str, Any] = {name: np.repeat(sums_U[name], size) for name in SUMS.names or ()}
    steps_L = of_learner["steps"]
    update_s = cluster.update_s * (units.exchange != SERVERS)
    member_L = np.tile(np.arange(size), units.num_units)
    in_last_round = cluster.num_batches - (units.rounds_of_epoch - 1) * size
    times_LK = _times(steps_L)
    compute_LK = cluster.compute_LK[: len(steps_L)]
    computed_L = (times_LK * compute_LK).sum(axis=1)
    outcome.steps += (steps_L - of_learner["short"] * (member_L >= in_last_round)).astype(np.int64)
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
    num_parts = max(1, units.num_servers)
    messages_L = of_learner["messages"] + of_learner["answers"] / num_parts
    outcome.bytes += (steps_L * units.inner_bytes + messages_L * units.message_bytes / size).astype(np.int64)
    for name in ("staleness", "exchanges", "skipped"):
        getattr(outcome, name)[:] += of_learner[name].astype(np.int64)


def _times(steps: Floats) -> Floats:
    """(.., K) how often each of the drawn steps was made, of so many steps."""
    return (steps // PERIOD)[:, None] + (np.arange(PERIOD) < (steps % PERIOD)[:, None])
