"""How long messages take: closed forms for collectives of learners that are ready, in seconds and bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """One way of a link."""

    bytes_per_s: float
    latency_s: float

    def seconds(self, num_bytes: float) -> float:
        """Of a message that has the link to itself, to its last byte."""
        return self.latency_s + num_bytes / self.bytes_per_s


@dataclass(frozen=True)
class Links:
    """Those of a cluster: `outer` of a node to others, shared by its learners; `inner` of each learner in its node."""

    outer: Link
    inner: Link
    node_size: int
    node_bytes_per_s: float = math.inf  # of all messages within a node together

    def num_nodes(self, num_learners: int) -> int:
        """Of so many learners."""
        return -(-num_learners // self.node_size)

    def inner_rate(self, num_learners: int) -> float:
        """Bytes a second of one of so many learners of a node that all send at the same time."""
        return min(self.inner.bytes_per_s, self.node_bytes_per_s / num_learners)

    def ring_allreduce_s(self, num_bytes: float, num_learners: int, num_nodes: int, rings: int = 1) -> float:
        """All learners, in a ring of neighbours, hold the sum of `num_bytes` (Patarasu and Yuan 2009).

        Each sends 2 (L - 1) / L of the bytes to its right neighbour, in as many parts, at the rate of the slowest link
        of the ring. One link a node leads out of it, which `rings` such rings share. A part that goes once round passes
        the latency of each link; it does so nearly twice.
        """
        if num_learners == 1:
            return 0.0
        rates = [self.outer.bytes_per_s / rings] if num_nodes > 1 else []
        rates += [self.inner_rate(-(-num_learners // num_nodes))] if num_learners > num_nodes else []
        num_outer = num_nodes if num_nodes > 1 else 0
        latency_s = num_outer * self.outer.latency_s + (num_learners - num_outer) * self.inner.latency_s
        return 2 * (num_learners - 1) / num_learners * (num_bytes / min(rates) + latency_s)

    def allreduce_s(self, num_bytes: float, num_learners: int) -> float:
        """The quicker of one ring, and of sums within nodes, then between them, each local rank with its slice."""
        num_nodes = self.num_nodes(num_learners)
        ring_s = self.ring_allreduce_s(num_bytes, num_learners, num_nodes)
        size = num_learners // num_nodes
        if num_nodes == 1 or size == 1:
            return ring_s
        inner_s = self.ring_allreduce_s(num_bytes, size, 1)
        outer_s = self.ring_allreduce_s(num_bytes / size, num_nodes, num_nodes, rings=size)
        return min(ring_s, inner_s + outer_s)

    def allgather_s(self, num_bytes: float, num_learners: int) -> float:
        """The learners of a node gather `num_bytes`, of which each has a slice: half of an allreduce."""
        return self.ring_allreduce_s(num_bytes, num_learners, 1) / 2
