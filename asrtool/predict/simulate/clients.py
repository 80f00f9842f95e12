"""Clients of the work queue: setup and partners of a strategy.

A group is a learner, or a super-learner of h-adpsgd. Shapes: L learners, G groups, K steps.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from asrtool.distributed.strategies.topology import check_ring, passive_partner
from asrtool.predict.simulate.cluster import PERIOD, Cluster
from asrtool.predict.simulate.lock_step import GradientSums
from asrtool.settings import registry

NONE = -1  # in place of a round, a group or a partner
Partners = Callable[[int, int], list[int]]  # number of groups, step from 1 -> partner of each group, or NONE

# Numbers of a training that do not change; make_setup has their meanings.
Setup = namedtuple(
    "Setup",
    "to_servers is_pairs counts_steps num_groups size num_parts message_bytes inner_bytes outer_rate outer_latency_s"
    " inner_rate inner_latency_s host_s tail_s comm_s update_s start_s checkpoint_s every_steps num_batches"
    " rounds_of_epoch num_rounds draw_G span_GK loading_GK compute_LK",
)


def make_setup(cluster: Cluster, strategy: str, settings: Any) -> Setup:
    """Make the setup of a strategy; AsrtoolError if super-learners are not full."""
    scenario, links = cluster.scenario, cluster.links
    size = cluster.super_learner_size(settings) if strategy == "h-adpsgd" else 1
    num_groups, num_parts = cluster.num_learners // size, max(1, getattr(settings, "num_servers", 0))
    to_servers, num_bytes = strategy == "ps-async", cluster.message_bytes(settings)
    within_s, inner_bytes, span_GK, loading_GK = 0.0, 0.0, cluster.compute_LK, cluster.loading_LK
    if size > 1:
        compute_GK, loading_GK = (
            times_LK[: cluster.num_learners].reshape(num_groups, size, PERIOD).max(axis=1)
            for times_LK in (cluster.compute_LK, loading_GK)
        )
        sums = GradientSums(cluster, num_bytes, size)
        gather_s = links.allgather_s(cluster.model_bytes, size)
        waits_s = cluster.wait_for_core_s(False, sums.all_s + gather_s) - cluster.wait_for_core_s(False)
        within_s = gather_s + waits_s
        inner_bytes = sums.sent_bytes + cluster.model_bytes / size * (size - 1)
        span_GK = sums.span_s(compute_GK)
    rounds_of_epoch = -(-cluster.num_batches // size)
    update_s = cluster.update_s * (not to_servers)
    draw_s = 2 * draw_trips(size) * links.outer.latency_s * (not to_servers)  # steps and answers of servers hide it
    is_away_G = np.arange(len(loading_GK)) * size >= links.node_size  # from the store, which is beside learner 0
    return Setup(
        to_servers=to_servers,
        is_pairs=strategy == "adpsgd-pairs",
        counts_steps=strategy == "hogwild",  # staleness counts the steps of all
        num_groups=num_groups,  # groups that begin
        size=size,  # learners of a group
        num_parts=num_parts,  # parts of a message, one for each server
        message_bytes=float(num_bytes),  # bytes of a group in one direction, over all servers
        inner_bytes=float(inner_bytes),  # bytes that a learner sends within its group in a step
        outer_rate=float(links.outer.bytes_per_s),  # bytes a second between nodes
        outer_latency_s=float(links.outer.latency_s),
        inner_rate=float(links.inner.bytes_per_s),
        inner_latency_s=float(links.inner.latency_s),
        host_s=float(cluster.host_s(num_bytes / num_parts / size)),  # for an end to read a part of a message
        tail_s=float(update_s + within_s),  # after the gradients: optimizer, gathering, waits for cores
        comm_s=float(cluster.mix_s * (strategy not in ("none", "hogwild"))),  # after that, of the thread that computes
        update_s=float(update_s),  # seconds of the optimizer if the learner runs it
        start_s=float(scenario.saving.start_s),
        checkpoint_s=float(scenario.saving.checkpoint_s),
        every_steps=scenario.saving.every_steps,
        num_batches=cluster.num_batches,  # of an epoch
        rounds_of_epoch=rounds_of_epoch,  # each with a batch for each learner of a group
        num_rounds=rounds_of_epoch * scenario.job.num_epochs,
        draw_G=draw_s * is_away_G,  # seconds in which the next batch is assigned
        span_GK=np.ascontiguousarray(span_GK),  # seconds in which gradients are computed and averaged within a group
        loading_GK=np.ascontiguousarray(loading_GK),
        compute_LK=np.ascontiguousarray(cluster.compute_LK),
    )


def draw_trips(size: int) -> int:
    """Return the round trips to the store by which a group of `size` draws a round.

    A ticket and a claim for each learner, in turn; then the others wait for these, and read them.
    """
    return 1 + size + 2 * (size > 1)


def make_partners(strategy: str, settings: Any, num_groups: int, seed: int) -> Partners:
    """Make the partners of a strategy; AsrtoolError if a custom ring is not valid."""
    if strategy in ("none", "hogwild", "ps-async"):
        return lambda num_live, step: [NONE] * num_live
    if strategy == "adpsgd-pairs":

        def passive(num_live: int, step: int) -> list[int]:
            found = (passive_partner(num_live, step, seed, place) for place in range(num_live))
            return [NONE if partner is None else partner for partner in found]

        return passive
    name = settings.ring if strategy == "adpsgd" else getattr(settings, "outer", strategy).removeprefix("adpsgd-")
    ring = registry.load("ring", name)
    check_ring(name, ring, num_groups, seed)

    def right_neighbours(num_live: int, step: int) -> list[int]:
        order = ring(num_live, step, seed)
        right = dict(zip(order, [*order[1:], order[0]], strict=True))
        return [right[place] for place in range(num_live)]

    return right_neighbours
