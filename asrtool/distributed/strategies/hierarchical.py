"""Hierarchical AD-PSGD (Zhang et al., arXiv 1907.05701): nodes exchange weights.

Gradients are averaged in a node. Its learners are one super-learner, which holds the same weights.
Each learner mixes a slice of them with the learners of the same local rank on other nodes, so all
links of a node are used. Then the node gathers its slices.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from asrtool.distributed.strategies.allreduce import AveragedGradients
from asrtool.distributed.strategies.delay_by_one import DelayByOne
from asrtool.distributed.strategies.gossip import Gossip
from asrtool.distributed.strategies.replica import LocalReplica, MixingRule
from asrtool.distributed.strategies.strategy import Snapshot, StepCost, Strategy, StrategyContext
from asrtool.distributed.strategies.topology import ring_partner
from asrtool.distributed.transport.device import clock_of
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.distributed.world import MESSAGE_TYPES, World, all_reduce_bytes
from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.distributed import Hierarchical


class SuperLearner(LocalReplica):
    """A learner of `node`, which mixes and saves its slice of the node's weights."""

    same_weights = True

    def __init__(
        self, context: StrategyContext, flat: FlatWeights, slice_P: Tensor, mixing: MixingRule, node: World
    ) -> None:
        self.gradients = AveragedGradients(context.task, node, MESSAGE_TYPES[context.settings.message_type])
        self.node = node
        self.slice_P = slice_P
        self.buffers_B = flat.weights_P[flat.num_weights :]
        self.node_clock = clock_of(slice_P)
        rule = AssignmentRule(group_size=node.size, lockstep=not mixing.asynchronous)
        super().__init__(context, flat, mixing, rule, self.gradients.task)

    def start(self) -> None:
        self.gradients.start()
        self._gather_slices()  # each has read its own of a checkpoint
        super().start()

    def step(self) -> tuple[float, StepCost]:
        inner = self.gradients.cost()
        norm, cost = super().step()
        cost.wait_s += inner.wait_s
        cost.num_bytes += inner.num_bytes
        return norm, cost

    def mix(self) -> StepCost:
        begin = self.node_clock.mark()
        self.average_buffers()
        averaged = self.node_clock.mark()
        cost = super().mix()
        mixed = self.node_clock.mark()
        self._gather_slices()
        cost.wait_s += sum(self.node_clock.seconds((begin, averaged), (mixed, self.node_clock.mark())))
        cost.num_bytes += self.slice_P.nbytes * (self.node.size - 1) + all_reduce_bytes(self.buffers_B, self.node)
        return cost

    def finish(self) -> None:
        super().finish()
        self._gather_slices()

    def average_buffers(self) -> None:
        """Average in the node, whose learners have changed buffers by different batches."""
        if len(self.buffers_B):
            mean_B = self.buffers_B.clone()  # an exchange must not read it while it is a sum
            self.node.mean(mean_B)
            with self.mixing.changing():
                self.buffers_B.copy_(mean_B)

    def _gather_slices(self) -> None:
        if self.node.size > 1:
            self.node.all_gather(list(self.flat.weights_P.chunk(self.node.size)), self.slice_P)

    def snapshot(self, cut: int) -> Snapshot:
        snapshot = super().snapshot(cut)
        if not self.asynchronous:
            snapshot.values_P = self.slice_P.to("cpu", copy=True)
        snapshot.offset = int(self.slice_P.storage_offset())
        snapshot.weight = self.node.size / self.world.size
        snapshot.learner["mixing"] |= snapshot.shared["mixing"]  # state of another slice, so it differs within a node
        snapshot.shared = {"optimizer": snapshot.learner.pop("optimizer")}
        snapshot.keeper = self.world.rank - self.node.rank
        return snapshot

    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        super().load_state({**learner, **shared}, {"mixing": learner["mixing"]})

    def end_steps(self) -> None:
        self.gradients.close()
        self.task = self.gradients.task

    def close(self) -> None:
        super().close()
        self.end_steps()


def hierarchical(context: StrategyContext) -> Strategy:
    """Make the strategy, with nodes of `node_size` neighbouring ranks.

    By default a node is the learners of a machine. AsrtoolError if that differs by machine, or if
    it does not divide the number of learners.
    """
    world, size = context.world, context.settings.node_size
    if not size:
        size, *larger = sorted(set(world.gather(world.local_size)))
        if larger:
            raise AsrtoolError(
                f"machines with {size} and {larger[0]} learners", "choose a distributed.h-adpsgd.node_size for all"
            )
    if world.size % size:
        raise AsrtoolError(
            f"{world.size} learners in nodes of {size}",
            "choose a distributed.h-adpsgd.node_size that divides the number of learners",
        )
    ranks = range(world.size)
    node = world.split([ranks[first : first + size] for first in ranks[::size]])
    others = world.split([ranks[place::size] for place in range(size)])
    flat = FlatWeights(context.model, slices=size)
    slice_P = flat.weights_P.chunk(size)[node.rank]
    return SuperLearner(context, flat, slice_P, outer_mixing(context, flat, slice_P, others), node)


def outer_mixing(context: StrategyContext, flat: FlatWeights, slice_P: Tensor, others: World) -> MixingRule:
    """Make the rule `outer` by which nodes mix."""
    settings: Hierarchical = context.settings
    if settings.outer == "adpsgd-d1":
        num_weights = min(max(flat.num_weights - int(slice_P.storage_offset()), 0), len(slice_P))
        return DelayByOne(slice_P, num_weights, others, MESSAGE_TYPES[settings.message_type])
    ring = registry.load("ring", settings.outer.removeprefix("adpsgd-"))
    return Gossip(slice_P, others, ring_partner(ring), settings.message_type, context.seed, context.note)
