"""Asynchronous decentralised SGD on a ring (Lian et al. 2018; rings of Zhang et al., arXiv 2110.11199).

W_{k+1} = W_k T_k - alpha g(Phi_k): every learner, once a step, averages with its right neighbour in the ring, by the
matrix T_k of the ring where all are equally fast, and subtracts its own gradient, which is never averaged.
"""

from __future__ import annotations

from asrtool.distributed.flat import FlatWeights
from asrtool.distributed.gossip import Gossip
from asrtool.distributed.strategy import LocalReplica, Strategy, StrategyContext
from asrtool.distributed.work_queue import AssignmentRule


def adpsgd(context: StrategyContext) -> Strategy:
    """The ring is named by the strategy: adpsgd-RING."""
    flat = FlatWeights(context.model)
    ring = context.name.removeprefix("adpsgd-")
    gossip = Gossip(flat.weights_P, context.world, ring, context.settings, context.seed)
    return LocalReplica(context, flat, gossip, AssignmentRule(), context.task)
