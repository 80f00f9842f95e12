"""Waiting times of synchronous strategies after the computation of a round.

Times are seconds since the start. Shapes: L learners, N super-learners.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.cluster import Cluster, Floats


class Rule(Protocol):
    """Rule of a strategy: the time that learners wait in a round."""

    comm_s: float  # what it takes of the thread that computes in a step, on average

    def waits(self, number: int, free_L: Floats, begin_L: Floats, computed_L: Floats) -> Floats:
        """Seconds for which each learner waits in round `number`, from `computed_L` on.

        Before, it was free, and began when it had its batch.
        """

    def sent_bytes(self, number: int) -> float:
        """Return the bytes that each learner sends in a round, as in its record."""


def overlapped_sum(cluster: Cluster, num_bytes: float, all_reduce_s: Callable[[float], float]) -> tuple[float, float]:
    """Return the seconds of all gradient sums, and of the last bucket alone.

    Bucket m is summed when all learners have computed it and bucket m - 1 is summed. Gradients come at an even pace,
    so the end is the later of two times: the first bucket is there and M are summed, or the last one is there and one
    is summed.
    """
    num_buckets = max(1, int(-(-num_bytes // (cluster.scenario.network.bucket_mb * 1e6))))
    one_s = all_reduce_s(num_bytes / num_buckets)
    return num_buckets * one_s, one_s


def first_bucket(cluster: Cluster, num_bytes: float) -> float:
    """Return the fraction of the computation before the first bucket."""
    num_buckets = max(1, int(-(-num_bytes // (cluster.scenario.network.bucket_mb * 1e6))))
    forward = cluster.scenario.compute.forward_fraction
    return forward + (1 - forward) / num_buckets


@dataclass
class AllReduceRule:
    """Average gradients during backward (asrtool.distributed.strategies.allreduce).

    `size` neighbours average: all learners, or a super-learner's in one node.
    """

    cluster: Cluster
    num_bytes: float
    size: int
    comm_s: float = 0.0
    all_s: float = field(init=False)
    one_s: float = field(init=False)
    first: float = field(init=False)

    def __post_init__(self) -> None:
        self.all_s, self.one_s = overlapped_sum(self.cluster, self.num_bytes, self._seconds)
        self.first = first_bucket(self.cluster, self.num_bytes)

    def _seconds(self, num_bytes: float) -> float:
        links = self.cluster.links
        if self.size == self.cluster.num_learners:
            return links.allreduce_s(num_bytes, self.size)
        return links.ring_allreduce_s(num_bytes, self.size, links.num_nodes(self.size))

    def span_s(self, compute_s: Any) -> Any:
        """Return the seconds from a common start to the sums, by the longest computation."""
        return np.maximum(self.first * compute_s + self.all_s, compute_s + self.one_s)

    def waits(self, number: int, free_L: Floats, begin_L: Floats, computed_L: Floats) -> Floats:
        if self.size == 1:
            return np.zeros(len(free_L))
        first_L = begin_L + self.first * (computed_L - begin_L)
        first_N, last_N = (times_L.reshape(-1, self.size).max(axis=1) for times_L in (first_L, computed_L))
        summed_N = np.maximum(first_N + self.all_s, last_N + self.one_s)
        waits_L: Floats = np.repeat(summed_N, self.size) - computed_L
        return waits_L

    def sent_bytes(self, number: int) -> float:
        return all_reduce_bytes(self.num_bytes, self.size)


@dataclass
class DelayByOneRule:
    """The mean of the weights is taken from when all are free, while they compute
    (asrtool.distributed.strategies.delay_by_one).

    Of `num_learners`, or of super-learners.
    """

    num_bytes: float
    num_learners: int
    mean_s: float
    comm_s: float

    def waits(self, number: int, free_L: Floats, begin_L: Floats, computed_L: Floats) -> Floats:
        if not self.mean_s:  # alone
            return np.zeros(len(free_L))
        waits_L: Floats = np.maximum(free_L.max() + self.mean_s - computed_L, 0)
        return waits_L

    def sent_bytes(self, number: int) -> float:
        return all_reduce_bytes(self.num_bytes, self.num_learners)


@dataclass
class SuperLearnerRule:
    """h-adpsgd with delay-by-one: gradients within a node, means between nodes."""

    inner: AllReduceRule
    outer: DelayByOneRule
    gather_s: float  # for the learners of a node to gather their slices
    gather_bytes: float
    comm_s: float

    def waits(self, number: int, free_L: Floats, begin_L: Floats, computed_L: Floats) -> Floats:
        inner_L = self.inner.waits(number, free_L, begin_L, computed_L)
        return inner_L + self.outer.waits(number, free_L, begin_L, computed_L + inner_L) + self.gather_s

    def sent_bytes(self, number: int) -> float:
        return self.inner.sent_bytes(number) + self.outer.sent_bytes(number) + self.gather_bytes


@dataclass
class BlockRule:
    """Wait for the mean at the end of a block (asrtool.distributed.strategies.bmuf)."""

    num_bytes: float
    num_learners: int
    block_steps: int
    mean_s: float
    comm_s: float

    def waits(self, number: int, free_L: Floats, begin_L: Floats, computed_L: Floats) -> Floats:
        if self.num_learners == 1 or not self._ends_block(number):
            return np.zeros(len(free_L))
        waits_L: Floats = computed_L.max() + self.mean_s - computed_L
        return waits_L

    def sent_bytes(self, number: int) -> float:
        return all_reduce_bytes(self.num_bytes, self.num_learners) if self._ends_block(number) else 0.0

    def _ends_block(self, number: int) -> bool:
        return (number + 1) % self.block_steps == 0


@dataclass
class ServerRule:
    """ps-sync: servers add gradients as they come, then answer one by one by rank.

    The way into a server's node, and the server, take one gradient at a time
    (asrtool.distributed.baselines.parameter_server).
    """

    num_bytes: float
    in_s: float  # of a gradient, by what is slower: the link into the node, or the server
    step_s: float  # of the optimizer
    answered_L: Floats  # from then on, when the answer to each learner has come
    latency_s: float
    comm_s: float

    def waits(self, number: int, free_L: Floats, begin_L: Floats, computed_L: Floats) -> Floats:
        places_L = np.arange(len(computed_L), 0, -1)
        added = float((np.sort(computed_L) + self.in_s * places_L).max()) + self.latency_s
        ordered = added + 2 * self.latency_s  # the norms there, the orders back
        waits_L: Floats = ordered + self.step_s + self.answered_L + self.latency_s - computed_L
        return waits_L

    def sent_bytes(self, number: int) -> float:
        return self.num_bytes


def all_reduce_bytes(num_bytes: float, num_learners: int) -> float:
    """Return the bytes a learner sends, as asrtool.distributed.world counts them."""
    return 2 * num_bytes * (num_learners - 1) / num_learners


def make_rule(cluster: Cluster, strategy: str, settings: Any) -> Rule:
    """Make the rule of a synchronous strategy with its settings."""
    num_learners, links = cluster.num_learners, cluster.links
    num_bytes = cluster.message_bytes(getattr(settings, "message_type", "fp32"))
    if strategy in ("allreduce", "single"):
        return AllReduceRule(cluster, num_bytes, num_learners)
    if strategy == "adpsgd-d1":
        return DelayByOneRule(num_bytes, num_learners, links.allreduce_s(num_bytes, num_learners), cluster.mix_s)
    if strategy == "bmuf":
        return BlockRule(
            num_bytes, num_learners, settings.block_steps, links.allreduce_s(num_bytes, num_learners), cluster.mix_s
        )
    if strategy == "ps-sync":
        return server_rule(cluster, num_bytes, settings.num_servers)
    assert strategy == "h-adpsgd", strategy
    size = super_learner_size(cluster, settings)
    num_nodes, part = num_learners // size, num_bytes / size
    # each local rank takes the mean of its slice; all of a node share its link
    outer_s = links.ring_allreduce_s(part, num_nodes, num_nodes, rings=size)
    gather_bytes = cluster.model_bytes / size * (size - 1)
    return SuperLearnerRule(
        AllReduceRule(cluster, num_bytes, size),
        DelayByOneRule(part, num_nodes, outer_s, cluster.mix_s),
        links.allgather_s(cluster.model_bytes, size),
        gather_bytes,
        cluster.mix_s,
    )


def super_learner_size(cluster: Cluster, settings: Any) -> int:
    """Return the learners of a super-learner; AsrtoolError if not a divisor."""
    size: int = settings.node_size or cluster.links.node_size
    if cluster.num_learners % size:
        what = f"{cluster.num_learners} learners in super-learners of distributed.h-adpsgd.node_size = {size}"
        raise AsrtoolError(what, "choose one that divides the number of learners")
    return size


def server_rule(cluster: Cluster, num_bytes: float, num_servers: int) -> ServerRule:
    """Return the rule; servers are beside the first learners and share links by node."""
    part, links = num_bytes / num_servers, cluster.links
    alone = links.num_nodes(cluster.num_learners) == 1
    link, sharing = (links.inner, 1) if alone else (links.outer, min(num_servers, links.node_size))
    link_s, host_s = sharing * part / link.bytes_per_s, cluster.host_s(part)
    answered_L = answers_s(cluster.num_learners, host_s, link_s)
    return ServerRule(num_bytes, max(link_s, host_s), host_s, answered_L, link.latency_s, cluster.mix_s)


def answers_s(num: int, host_s: float, link_s: float) -> Floats:
    """Return arrival times of `num` messages that a server writes in turn.

    Each takes `host_s`. Messages under way share the link, of which one alone needs `link_s`. A slow server's arrive
    one by one, a fast one's nearly together.
    """
    ends_L, due_L = np.zeros(num), np.zeros(num)
    now_s = received = 0.0  # time, and what fraction of a message that began at 0 would have been received
    first = 0  # that is under way
    for last in range(num + 1):
        begin_s = last * host_s if last < num else np.inf
        while first < last and now_s + (due_L[first] - received) * link_s * (last - first) <= begin_s:
            now_s += (due_L[first] - received) * link_s * (last - first)
            received = due_L[first]
            ends_L[first] = max(now_s, (first + 1) * host_s)
            first += 1
        if last < num:
            received += (begin_s - now_s) / (link_s * (last - first)) if first < last else 0.0
            now_s, due_L[last] = begin_s, received + 1
    return ends_L
