"""Gossip strategies of virtual learners, by asrtool.distributed.transport.view.

The weights of a learner do not change from a Begin to the update of that step, even if it exchanges meanwhile. So the
gradient is computed at the update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from asrtool.distributed.transport.view import View
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.predict.simulate.events import Change, Event
from asrtool.predict.virtual.replica import Replica, Rule, SharedModel


class Node:
    """Learners that average gradients, mostly one; each exchanges a slice of weights."""

    def __init__(self, shared: SharedModel, members: Sequence[int]) -> None:
        self.replica = Replica(shared, members)
        self.slices = self.replica.weights_P.chunk(len(members))
        self.updated: tuple[Tensor, ...] = ()  # slices after the update of this step, once it is computed
        self.waiting: set[int] = set()  # members whose slice is not updated yet


@dataclass
class Learner:
    """Slice of a virtual learner and its message: a snapshot, then the answer."""

    node: Node
    view: View
    message_P: Tensor
    offset: int  # offset of the slice
    epoch: int = 0  # epoch of its last step
    answered: int | None = None  # epoch of the partner when it sent an answer that has not arrived


class Gossip(Rule):
    """Exchanges of fraction `weight`, at the times of events."""

    def __init__(
        self, shared: SharedModel, num_learners: int, weight: float, message_type: torch.dtype, node_size: int = 1
    ) -> None:
        super().__init__(shared, num_learners // node_size, AssignmentRule(group_size=node_size))
        self.weight = weight
        ranks = range(num_learners)
        self.learners: list[Learner] = []
        for first in ranks[::node_size]:
            node = Node(shared, ranks[first : first + node_size])
            for slice_P in node.slices:
                message_P = torch.zeros_like(slice_P, dtype=message_type)
                offset = int(slice_P.storage_offset())
                self.learners.append(Learner(node, View(slice_P, message_type), message_P, offset))

    def follow(self, event: Event) -> None:
        assert isinstance(event, Change), event
        learner = self.learners[event.learner]
        if event.kind == "update":
            self._update(event.learner)
        elif event.kind == "take":
            self.steps[event.learner].staleness = learner.view.update()
        elif event.kind == "send":
            learner.view.ask(learner.message_P)
        elif event.kind == "answer":
            sender = self.learners[event.other]
            learner.view.answer(sender.message_P, self.weight, learner.view.cut)
            sender.answered = learner.epoch
            for epoch in range(learner.epoch + 1, sender.epoch + 1):  # one end already counted weights before the pull
                self.means[epoch].add_pull(sender.message_P, -1, sender.offset)
        else:
            assert event.kind == "receive", event
            assert learner.answered is not None, "an answer to nothing"
            learner.view.pull(learner.message_P)
            for epoch in range(learner.epoch + 1, learner.answered + 1):
                self.means[epoch].add_pull(learner.message_P, 1, learner.offset)
            learner.answered = None

    def enter(self, learner: int, epoch: int) -> None:
        """Add a learner's part to the mean before `epoch`.

        An exchange counts at both ends or at neither, as at the cuts of a real training.
        """
        enters = self.learners[learner]
        enters.epoch = epoch
        mean = self.means[epoch]
        mean.add(enters.view.copy(), enters.offset)
        if enters.answered is not None and enters.answered < epoch:
            mean.add_pull(enters.message_P, -1, enters.offset)

    def _update(self, learner: int) -> None:
        """Apply the update of a step, which the first of a node computes for all."""
        node = self.learners[learner].node
        replica = node.replica
        if not node.waiting:
            group = [self.steps[member] for member in replica.members]
            replica.compute(group)
            if len(group) > 1:
                updated_P = replica.weights_P.clone()
                replica.shared.flat.move(updated_P)
                node.updated = updated_P.chunk(len(group))
            replica.apply(group)
            node.waiting = set(replica.members)
        place = replica.members.index(learner)
        if node.updated:
            node.slices[place].copy_(node.updated[place])
        node.waiting.remove(learner)
