"""AD-PSGD as first published: atomic averages of pairs on a bipartite graph (Lian et al. 2018, Algorithm 1).

A learner of even rank is active: after each step it begins an exchange of weight 1/2 with a passive learner, one of odd
rank, drawn anew from all of them. Nobody begins one with an active learner, so an active one waits for a passive one
alone, whose thread answers at once, and nothing can deadlock.

An exchange is atomic: both views become their mean as if at one instant, that of the answer. The passive learner
changes its view under one lock, one exchange at a time. That of the active one is read by nobody else, and it asks
again after the answer alone: what its optimizer changes behind its snapshot is as if changed behind the answer. So T of
an exchange is doubly stochastic, whatever the delays. With bf16 messages both move by the rounded difference; they are
then equal up to rounding, and their sum is kept. With weights on a GPU, an active learner that takes its part of a
checkpoint publishes its update while an exchange may be under way; the sum is kept then, too. A passive learner there
copies its weights and what was pulled in every step, and waits for the copies of the step before.
"""

from __future__ import annotations

import time

from asrtool.distributed.flat import FlatWeights
from asrtool.distributed.gossip import Gossip
from asrtool.distributed.replica import LocalReplica
from asrtool.distributed.strategy import StepCost, Strategy, StrategyContext
from asrtool.distributed.topology import PAIR_WEIGHT, passive_partner
from asrtool.distributed.work_queue import AssignmentRule


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
