"""The compiled events, where they could be compiled: `_events.cpp` does what asynchronous.py and lock_step.py do.

Shapes: U units, K steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrtool.distributed.work.work_queue import AHEAD, SLOW
from asrtool.predict.simulate.cluster import PERIOD, Cluster, Floats
from asrtool.predict.simulate.outcome import Outcome
from asrtool.predict.simulate.queue_clients import GOSSIP, NOTHING, PAIRS, SERVERS, Units
from asrtool.predict.simulate.scenario import Scenario
from asrtool.predict.simulate.synchronous_rules import (
    AllReduceRule,
    BlockRule,
    DelayByOneRule,
    Rule,
    ServerRule,
    SuperLearnerRule,
)

try:
    import asrtool.predict.simulate._events as compiled
except ImportError:  # no C++ compiler where asrtool was installed
    compiled = None  # type: ignore[assignment]

Numbers = NDArray[Any]
EXCHANGES = (NOTHING, GOSSIP, PAIRS, SERVERS)
LEARNER_SUMS = np.dtype(
    [(name, "f8") for name in ("free_s", "compute_s", "wait_s", "data_s", "between_s", "blamed_s", "steps")]
)
SUMS = np.dtype(
    [
        (name, "f8")
        for name in (
            "free_s", "span_s", "data_s", "wait_s", "saved_s",
            "steps", "messages", "answers", "staleness", "exchanges", "skipped", "short",
        )
    ]
)  # fmt: skip


def fits(scenario: Scenario) -> bool:
    """Whether the compiled part knows all that happens in a training."""
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


def run_lock_step(cluster: Cluster, rule: Rule, outcome: Outcome) -> Floats:
    """The rounds of the whole training, their sums added to `outcome`; (L) when each learner was through."""
    num_learners, saving = cluster.num_learners, cluster.scenario.saving
    rounds_of_epoch = -(-cluster.num_batches // num_learners)
    num_rounds = rounds_of_epoch * cluster.scenario.job.num_epochs
    sums_L = np.zeros(num_learners, LEARNER_SUMS)
    loading_LK = cluster.loading_LK
    loads = None if loading_LK is None else np.ascontiguousarray(loading_LK[:num_learners])
    settings = (
        *_rule(rule, num_learners), cluster.update_s, rule.comm_s, saving.start_s, saving.checkpoint_s,
        saving.evaluation_s / num_learners, num_rounds, rounds_of_epoch, saving.every_steps, cluster.num_batches,
    )  # fmt: skip
    answered_L = np.ascontiguousarray(rule.answered_L) if isinstance(rule, ServerRule) else None
    computes_LK = np.ascontiguousarray(cluster.compute_LK[:num_learners])
    compiled.run_lock_step(settings, computes_LK, loads, answered_L, sums_L)
    for name in ("compute_s", "wait_s", "data_s", "between_s", "blamed_s"):
        getattr(outcome, name)[:] += sums_L[name]
    outcome.comm_s += num_rounds * rule.comm_s
    outcome.steps += sums_L["steps"].astype(np.int64)
    block_steps = rule.block_steps if isinstance(rule, BlockRule) else 1
    outcome.bytes += num_rounds // block_steps * int(rule.sent_bytes(block_steps - 1))
    free_L: Floats = sums_L["free_s"]
    return free_L


def _rule(rule: Rule, num_learners: int) -> tuple[float, ...]:
    """The numbers of a rule, those of others 0."""
    kind, size, sums, mean_s, gather_s, block_steps, server = 0, 1, (0.0, 0.0, 0.0), 0.0, 0.0, 1, (0.0,) * 3
    if isinstance(rule, SuperLearnerRule):
        kind, gather_s = 2, rule.gather_s
    inner = rule.inner if isinstance(rule, SuperLearnerRule) else rule
    outer = rule.outer if isinstance(rule, SuperLearnerRule) else rule
    if isinstance(inner, AllReduceRule):
        size, sums = inner.size, (inner.all_s, inner.one_s, inner.first)
    if isinstance(outer, DelayByOneRule):
        kind, mean_s = kind or 1, outer.mean_s
    if isinstance(rule, BlockRule):
        kind, mean_s, block_steps = 3, rule.mean_s, rule.block_steps
    if isinstance(rule, ServerRule):
        kind, server = 4, (rule.in_s, rule.step_s, rule.latency_s)
    return kind, num_learners, PERIOD, size, *sums, mean_s, gather_s, block_steps, *server


def _times(steps: Floats) -> Floats:
    """(.., K) how often each of the drawn steps was made, of so many steps."""
    return (steps // PERIOD)[:, None] + (np.arange(PERIOD) < (steps % PERIOD)[:, None])
