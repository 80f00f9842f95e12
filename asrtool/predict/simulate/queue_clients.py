"""Clients of the work queue: a learner each, or a super-learner of h-adpsgd.

Shapes: U units, K steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asrtool.distributed.strategies.topology import Ring, check_ring, passive_partner
from asrtool.predict.simulate.cluster import PERIOD, Cluster, Floats, wait_for_core_s
from asrtool.predict.simulate.synchronous_rules import AllReduceRule, super_learner_size
from asrtool.settings import registry

NONE = -1  # in place of a round


GOSSIP, PAIRS, SERVERS, NOTHING = "gossip", "pairs", "servers", "nothing"
RINGS = {"adpsgd-fixed": "fixed", "adpsgd-random": "random"}


@dataclass(frozen=True)
class Units:
    """Clients of the work queue under a strategy.

    `span_UK` are the seconds in which gradients are computed and averaged within a unit.
    """

    cluster: Cluster
    size: int  # learners of a unit
    num_units: int  # that begin
    exchange: str  # GOSSIP, PAIRS, SERVERS or NOTHING
    ring: Ring | None  # of gossip
    num_servers: int
    survives: bool
    joinable: bool
    message_bytes: float  # of a unit in one direction, over all servers
    inner_bytes: float  # that a learner sends within its unit in a step
    tail_s: float  # after the gradients of a step: optimizer, gathering slices of a unit, waits for cores
    comm_s: float  # after that: the part of an exchange that takes the thread that computes
    span_UK: Floats
    loading_UK: Floats | None
    rule: AllReduceRule | None  # by which a unit of several learners averages their gradients

    def span_s(self, unit: int, column: int, factors: Sequence[float]) -> float:
        """Return the seconds of a step whose learners take `factors` times as long."""
        members = self.members(unit)
        longest_s = float((self.cluster.compute_LK[members.start : members.stop, column] * factors).max())
        return self.rule.span_s(longest_s) if self.rule else longest_s

    @property
    def rounds_of_epoch(self) -> int:
        """Rounds in an epoch, each with a batch for each learner of a unit."""
        return -(-self.cluster.num_batches // self.size)

    def partners(self, num_units: int, step: int, seed: int) -> list[int | None]:
        """Return the partner of each of so many units after a step, counted from 1."""
        if self.ring:
            order = self.ring(num_units, step, seed)
            right = dict(zip(order, [*order[1:], order[0]], strict=True))
            return [right[place] for place in range(num_units)]
        return [passive_partner(num_units, step, seed, place) for place in range(num_units)]

    def node(self, unit: int) -> int:
        """Return the node of a unit; one that joins has its own."""
        first = unit * self.size
        if first >= self.cluster.num_learners:
            return self.cluster.links.num_nodes(self.cluster.num_learners) + unit - self.num_units
        return first // self.cluster.links.node_size

    def members(self, unit: int) -> range:
        """Return the learners of a unit."""
        return range(unit * self.size, (unit + 1) * self.size)


def make_units(cluster: Cluster, strategy: str, settings: Any) -> Units:
    """Make the units of a strategy.

    Raises AsrtoolError if a custom ring is not valid, or learners do not fill super-learners.
    """
    size = super_learner_size(cluster, settings) if strategy == "h-adpsgd" else 1
    num_units = cluster.num_learners // size
    exchange, ring = _exchange(cluster, strategy, settings, num_units)
    num_bytes = cluster.message_bytes(getattr(settings, "message_type", "fp32"))
    within_s, inner_bytes, span_UK, rule = 0.0, 0.0, cluster.compute_LK, None
    joinable = bool(getattr(settings, "joinable", False))
    if size > 1:
        rule = AllReduceRule(cluster, num_bytes, size)
        gather_s = cluster.links.allgather_s(cluster.model_bytes, size)
        within_s = gather_s + _wait_for_core_s(cluster, rule.all_s + gather_s)
        inner_bytes = rule.sent_bytes(0) + cluster.model_bytes / size * (size - 1)
        compute_UNK = cluster.compute_LK[: cluster.num_learners].reshape(num_units, size, PERIOD)
        span_UK = rule.span_s(compute_UNK.max(axis=1))
    loading_UK = cluster.loading_LK
    if loading_UK is not None and size > 1:
        loading_UK = loading_UK[: cluster.num_learners].reshape(num_units, size, PERIOD).max(axis=1)
    return Units(
        cluster=cluster,
        size=size,
        num_units=num_units,
        exchange=exchange,
        ring=ring,
        num_servers=getattr(settings, "num_servers", 0),
        survives=bool(getattr(settings, "survives", False)),
        joinable=joinable,
        message_bytes=num_bytes,
        inner_bytes=inner_bytes,
        tail_s=cluster.update_s * (exchange != SERVERS) + within_s,
        comm_s=cluster.mix_s * (exchange != NOTHING),
        span_UK=span_UK,
        loading_UK=loading_UK,
        rule=rule,
    )


def _wait_for_core_s(cluster: Cluster, message_s: float) -> float:
    """Return the extra wait for cores that messages within a unit cause."""
    parts = (cluster.scenario, cluster.links.node_size, cluster.batch, False)
    return wait_for_core_s(*parts, message_s) - wait_for_core_s(*parts)


def _exchange(cluster: Cluster, strategy: str, settings: Any, num_units: int) -> tuple[str, Ring | None]:
    if strategy in ("none", "hogwild"):
        return NOTHING, None
    if strategy == "ps-async":
        return SERVERS, None
    if strategy == "adpsgd-pairs":
        return PAIRS, None
    if strategy == "h-adpsgd":
        return GOSSIP, registry.load("ring", settings.outer.removeprefix("adpsgd-"))
    name = RINGS.get(strategy) or settings.ring
    ring = registry.load("ring", name)
    check_ring(name, ring, num_units, cluster.scenario.job.seed)
    return GOSSIP, ring
