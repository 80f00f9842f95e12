"""Asynchronous decentralised SGD on a ring (Lian et al. 2018; rings of Zhang et al., arXiv 2110.11199).

W_{k+1} = W_k T_k - alpha g(Phi_k): every learner, once a step, averages with its right neighbour in the ring, by the
matrix T_k of the ring where all are equally fast, and subtracts its own gradient, which is never averaged.
"""

from __future__ import annotations

import time

from asrtool.distributed.strategies.gossip import Gossip
from asrtool.distributed.strategies.replica import LocalReplica
from asrtool.distributed.strategies.strategy import StepCost, Strategy, StrategyContext
from asrtool.distributed.strategies.topology import (
    PAIR_WEIGHT,
    Ring,
    check_ring,
    fixed_ring,
    on_ring,
    passive_partner,
    random_ring,
)
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.settings import registry


def adpsgd(context: StrategyContext) -> Strategy:
    """On the ring that `distributed.adpsgd.ring` names. Raises AsrtoolError where a person's own is none."""
    name = context.settings.ring
    ring: Ring = registry.load("ring", name)
    check_ring(name, ring, context.world.size, context.seed)
    return _on_ring(context, ring)


def adpsgd_fixed(context: StrategyContext) -> Strategy:
    return _on_ring(context, fixed_ring)


def adpsgd_random(context: StrategyContext) -> Strategy:
    return _on_ring(context, random_ring)


def _on_ring(context: StrategyContext, ring: Ring) -> Strategy:
    flat = FlatWeights(context.model)
    message_type = context.settings.message_type
    gossip = Gossip(flat.weights_P, context.world, on_ring(ring), message_type, context.seed, context.note)
    return LocalReplica(context, flat, gossip, AssignmentRule(), context.task)


class Pairs(Gossip):
    """Active learners begin exchanges, passive ones answer."""

    weight = PAIR_WEIGHT

    def mix(self) -> StepCost:
        begin = time.perf_counter()
        self.swap.drain()
        waited_s = time.perf_counter() - begin
        cost = super().mix()
        cost.wait_s = waited_s
        return cost


def adpsgd_pairs(context: StrategyContext) -> Strategy:
    flat = FlatWeights(context.model)
    message_type = context.settings.message_type
    gossip = Pairs(flat.weights_P, context.world, passive_partner, message_type, context.seed, context.note)
    return LocalReplica(context, flat, gossip, AssignmentRule(), context.task)
