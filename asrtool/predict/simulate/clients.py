"""Clients of the work queue.

A unit is a learner, or a super-learner of h-adpsgd. Shapes: L learners, U units, K steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from asrtool.distributed.strategies.topology import Ring, check_ring, passive_partner
from asrtool.predict.simulate.cluster import PERIOD, Cluster, Floats, wait_for_core_s
from asrtool.predict.simulate.lock_step import GradientSums
from asrtool.settings import registry

NONE = -1  # in place of a round, a unit or a partner
Partners = Callable[[int, int], list[int]]  # number of units, step from 1 -> partner of each unit, or NONE


class Setup(NamedTuple):
    """Numbers of a training that do not change."""

    to_servers: bool
    is_pairs: bool
    counts_steps: bool  # staleness counts the steps of all (hogwild)
    num_units: int  # that begin
    size: int  # learners of a unit
    num_parts: int  # of a message, one for each server
    message_bytes: float  # of a unit in one direction, over all servers
    inner_bytes: float  # that a learner sends within its unit in a step
    outer_rate: float  # bytes a second between nodes
    outer_latency_s: float
    inner_rate: float
    inner_latency_s: float
    host_s: float  # for an end to read a part of a message
    tail_s: float  # after the gradients of a step: optimizer, gathering slices of a unit, waits for cores
    comm_s: float  # after that: the part of an exchange that takes the thread that computes
    update_s: float  # of the optimizer, if it is the learner's
    start_s: float
    checkpoint_s: float
    every_steps: int
    num_batches: int  # of an epoch
    rounds_of_epoch: int  # each with a batch for each learner of a unit
    num_rounds: int
    span_UK: Floats  # seconds of a step, in which gradients are computed and averaged within a unit
    loading_UK: Floats
    compute_LK: Floats


def make_setup(cluster: Cluster, strategy: str, settings: Any) -> Setup:
    """Make the setup of a strategy.

    Raises AsrtoolError if learners do not fill super-learners.
    """
    scenario, links = cluster.scenario, cluster.links
    size = cluster.super_learner_size(settings) if strategy == "h-adpsgd" else 1
    num_units, num_parts = cluster.num_learners // size, max(1, getattr(settings, "num_servers", 0))
    to_servers, num_bytes = strategy == "ps-async", cluster.message_bytes(settings)
    within_s, inner_bytes, span_UK, loading_UK = 0.0, 0.0, cluster.compute_LK, cluster.loading_LK
    if size > 1:
        compute_UK, loading_UK = (
            times_LK[: cluster.num_learners].reshape(num_units, size, PERIOD).max(axis=1)
            for times_LK in (cluster.compute_LK, loading_UK)
        )
        sums = GradientSums(cluster, num_bytes, size)
        gather_s = links.allgather_s(cluster.model_bytes, size)
        cores = (scenario, links.node_size, cluster.batch, False)
        waits_s = wait_for_core_s(*cores, sums.all_s + gather_s) - wait_for_core_s(*cores)
        within_s = gather_s + waits_s
        inner_bytes = sums.sent_bytes + cluster.model_bytes / size * (size - 1)
        span_UK = sums.span_s(compute_UK)
    rounds_of_epoch = -(-cluster.num_batches // size)
    update_s = cluster.update_s * (not to_servers)
    return Setup(
        to_servers=to_servers,
        is_pairs=strategy == "adpsgd-pairs",
        counts_steps=strategy == "hogwild",
        num_units=num_units,
        size=size,
        num_parts=num_parts,
        message_bytes=float(num_bytes),
        inner_bytes=float(inner_bytes),
        outer_rate=float(links.outer.bytes_per_s),
        outer_latency_s=float(links.outer.latency_s),
        inner_rate=float(links.inner.bytes_per_s),
        inner_latency_s=float(links.inner.latency_s),
        host_s=float(cluster.host_s(num_bytes / num_parts / size)),
        tail_s=float(update_s + within_s),
        comm_s=float(cluster.mix_s * (strategy not in ("none", "hogwild"))),
        update_s=float(update_s),
        start_s=float(scenario.saving.start_s),
        checkpoint_s=float(scenario.saving.checkpoint_s),
        every_steps=scenario.saving.every_steps,
        num_batches=cluster.num_batches,
        rounds_of_epoch=rounds_of_epoch,
        num_rounds=rounds_of_epoch * scenario.job.num_epochs,
        span_UK=np.ascontiguousarray(span_UK),
        loading_UK=np.ascontiguousarray(loading_UK),
        compute_LK=np.ascontiguousarray(cluster.compute_LK),
    )


def make_partners(strategy: str, settings: Any, num_units: int, seed: int) -> Partners:
    """Make the partners of a strategy; AsrtoolError if a custom ring is not valid."""
    if strategy in ("none", "hogwild", "ps-async"):
        return lambda num_live, step: [NONE] * num_live
    if strategy == "adpsgd-pairs":
        return lambda num_live, step: [
            NONE if partner is None else partner
            for partner in (passive_partner(num_live, step, seed, place) for place in range(num_live))
        ]
    outer = getattr(settings, "outer", strategy)
    name = settings.ring if strategy == "adpsgd" else outer.removeprefix("adpsgd-")
    ring: Ring = registry.load("ring", name)
    check_ring(name, ring, num_units, seed)

    def right_neighbours(num_live: int, step: int) -> list[int]:
        order = ring(num_live, step, seed)
        right = dict(zip(order, [*order[1:], order[0]], strict=True))
        return [right[place] for place in range(num_live)]

    return right_neighbours


def node_of(setup: Setup, cluster: Cluster, unit: int) -> int:
    """Return the node of a unit; a joining unit has its own."""
    first = unit * setup.size
    if first >= cluster.num_learners:
        return cluster.links.num_nodes(cluster.num_learners) + unit - setup.num_units
    return first // cluster.links.node_size
