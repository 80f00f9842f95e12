"""Synchronous SGD with a parameter server (Li et al. 2014): w <- w - alpha mean_i g(w^i), one update for all learners.

A round: each learner pushes its gradient; a server adds them in the order of ranks, as they come, and answers with the
norms of their mean. From those each learner finds the norm of the whole mean, which no server knows, and orders the
step with the factor that clips it. Once all have, the server makes one step and answers all with the same weights.
"""

from __future__ import annotations

import math
import struct
import time
from typing import Any

import torch
import zmq

from asrtool.distributed.baselines.served_learner import Served, check_number
from asrtool.distributed.baselines.weight_server import Server, Slice
from asrtool.distributed.strategies.strategy import Snapshot, StepCost, Strategy, StrategyContext
from asrtool.distributed.work.work_queue import AssignmentRule

PUSH, STEP = b"push", b"step"  # with a gradient; with a learning rate and the factor that clips
HOW = struct.Struct("<dd")
CLIP_MARGIN = 1e-6  # beside the norm, as torch's clip_grad_norm_ has it


class SynchronousServer(Server):
    """Steps on the mean of all gradients. Those that come before their turn wait, at most one of each learner."""

    def __init__(self, kept: Slice, num_learners: int, message_type: torch.dtype) -> None:
        super().__init__(kept, num_learners, message_type)
        self.waiting: dict[int, zmq.Frame] = {}  # gradients by rank
        self.num_added = self.num_ordered = 0  # in this round

    def _follow(self, rank: int, order: bytes) -> None:
        frame = self.socket.recv(copy=False)
        if order == PUSH:
            self.waiting[rank] = frame
            self._add()
            return
        self.num_ordered += 1
        if self.num_ordered == self.num_learners:
            self.num_ordered = 0
            rate, factor = HOW.unpack(frame.bytes)  # the same of all
            self.slice.gradients_P *= factor
            self.slice.step(rate)
            self._answer(range(self.num_learners), self.message_P)

    def _add(self) -> None:
        """Those whose turn it is; after the last, answer with the norms of their mean."""
        total_P = self.slice.gradients_P
        while frame := self.waiting.pop(self.num_added, None):
            gradient_P = torch.frombuffer(frame.buffer, dtype=self.message_P.dtype)
            total_P.add_(gradient_P) if self.num_added else total_P.copy_(gradient_P)
            self.num_added += 1
        if self.num_added == self.num_learners:
            self.num_added = 0
            total_P /= self.num_learners
            norms = torch.stack(torch._foreach_norm(self.slice.gradients)).numpy().tobytes()
            for rank in range(self.num_learners):
                self._send(rank, norms)


class SynchronousParameterServer(Served):
    """A learner that waits for all others at every step."""

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context, SynchronousServer)
        self.assignment_rule = AssignmentRule(group_size=self.world.size, lockstep=True)

    def step(self) -> tuple[float, StepCost]:
        begin = time.perf_counter()
        self._fetch_gradients()
        if self.update.loss_scale:
            self.gradients_P /= self.update.loss_scale.value
        self.client.push(PUSH, gradients=self.gradients_P.split(self.lengths))
        pushed = time.perf_counter()
        self._wait()
        norm, factor = self._norm_and_factor()
        if self.update.loss_scale:
            self.update.loss_scale.note(norm)
        if math.isfinite(norm) and norm > 0:
            self.client.order(STEP, HOW.pack(self.optimizer.param_groups[0]["lr"], factor))
            self._wait()
            answered = time.perf_counter()
            self._receive()
        else:
            answered = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        comm_s = time.perf_counter() - answered + pushed - begin
        return norm, StepCost(comm_s, answered - pushed, self.gradients_P.nbytes + self._num_answered())

    def _norm_and_factor(self) -> tuple[float, float]:
        """The norm of the mean gradient, and by what clips it: as torch's clip_grad_norm_ computes both."""
        norms = torch.cat([torch.frombuffer(bytearray(part), dtype=torch.float32) for part in self.client.answers()])
        norm = torch.linalg.vector_norm(norms)
        return float(norm), float((self.clip_norm / (norm + CLIP_MARGIN)).clamp(max=1.0))

    def snapshot(self, cut: int) -> Snapshot:
        learner: dict[str, Any] = self.statistics.state()
        if self.server:
            learner |= {"server": self.server.slice.state()}
        return Snapshot(learner, keeper=self.world.rank)


def synchronous_parameter_server(context: StrategyContext) -> Strategy:
    """`distributed.ps-sync.num_servers` servers; the weights are split between them at the borders of parameters."""
    check_number(context)
    return SynchronousParameterServer(context)
