"""Clients of the work queue (a learner, or a super-learner of h-adpsgd), and the queue's rounds.

Shapes: U units, K steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asrtool.distributed.strategies.topology import Ring, check_ring, passive_partner
from asrtool.distributed.work.work_queue import rounds_left_to_others
from asrtool.predict.simulate.cluster import PERIOD, Cluster, Floats, wait_for_core_s
from asrtool.predict.simulate.synchronous_rules import AllReduceRule, super_learner_size
from asrtool.settings import registry

NONE = -1  # in place of a round


class Rounds:
    """A counter, and what lost units have left of what was drawn."""

    def __init__(self, of_epoch: int, num_epochs: int) -> None:
        self.of_epoch = of_epoch
        self.num = of_epoch * num_epochs
        self.num_epochs = num_epochs
        self.next = 0
        self.left: list[int] = []  # rounds that lost units had drawn
        self.num_done = 0  # units that left the last rounds to others
        self.cuts = [0]  # the rounds before which checkpoints lie
        self.cut_s = [0.0]

    def draw(self, drawn: tuple[int, ...], num_live: int) -> tuple[int, tuple[int, ...]]:
        """Return the next round for one of `num_live` units, or NONE, and its last two.

        A round of a lost unit comes first.
        """
        if self.left:
            return self.left.pop(0), drawn
        if self.next >= self.num or self._would_be_last(drawn, num_live):
            return NONE, drawn
        number, self.next = self.next, self.next + 1
        return number, (*drawn[-1:], number)

    def _would_be_last(self, drawn: tuple[int, ...], num_live: int) -> bool:
        """Check whether a unit leaves its round to others, as the work queue does."""
        if len(drawn) < 2:
            return False
        before, last = drawn
        rounds = rounds_left_to_others(before, last, num_live)
        in_last_epoch = self.epoch_of(last) == self.num_epochs - 1
        if rounds is None or rounds.stop < self.num or not in_last_epoch:
            return False
        self.num_done += 1
        return self.num_done < num_live

    def epoch_of(self, number: int) -> int:
        """Return the epoch of a round."""
        return number // self.of_epoch

    def cut(self, seconds: float, epoch: int | None) -> None:
        """Make a checkpoint at the beginning of `epoch`, or between two steps for None."""
        self.cuts.append(self.next if epoch is None else epoch * self.of_epoch)
        self.cut_s.append(seconds)

    def restart(self, in_hand: Sequence[int], seconds: float) -> tuple[int, float]:
        """Go back to the last complete checkpoint; resume at `seconds`.

        Units have the rounds `in_hand`. Returns the rounds trained again, and the checkpoint's time.
        """
        trained = min(in_hand, default=self.next)
        place = max(index for index, cut in enumerate(self.cuts) if cut <= trained)
        cut, cut_s = self.cuts[place], self.cut_s[place]
        num_repeated = self.next - cut - sum(number >= cut for number in in_hand)
        self.next, self.num_done = cut, 0
        self.cuts, self.cut_s = [cut], [seconds]
        return num_repeated, cut_s


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
    tail_s: (
        float  # behind the gradients of a step: the optimizer, the slices of a unit that it gathers, waits for cores
    )
    comm_s: float  # behind that: what an exchange takes of the thread that computes
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
        """The learners of a unit."""
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
