"""Asynchronous SGD with a parameter server (Dean et al. 2012): w <- w - alpha g(w'), w' being weights of before.

A learner pushes its clipped gradient to the servers, and waits for the weights that result from it. A server makes the
step of each gradient when it arrives; the steps that others made since the weights that a gradient was computed on are
its staleness.

A checkpoint is a consistent cut (Chandy and Lamport 1985). Each learner that comes to it lets the servers know before
its next push. At the first notice a server forks its slice: all gradients it has stepped on are from before the cut.
From then on it makes the step of a gradient from before the cut on both, of one from behind it on its own slice alone.
With the notice of the last learner the fork has all gradients from before the cut, in the order in which they came, and
none from behind it, though no learner has waited for another.
"""

from __future__ import annotations

import functools
import struct
import threading
import time

import torch

from asrtool.distributed.baselines.served_learner import Served, check_number
from asrtool.distributed.baselines.weight_server import Server, Slice
from asrtool.distributed.strategies.strategy import Snapshot, StepCost, Strategy, StrategyContext
from asrtool.distributed.strategies.update import Update
from asrtool.distributed.transport.event_log import Note, no_note
from asrtool.distributed.transport.view import Recorded
from asrtool.distributed.weights.flat import as_bytes
from asrtool.distributed.work.work_queue import AssignmentRule

PUSH, PASSED = b"push", b"passed"  # with a learning rate and a gradient; with the number of a cut
RATE, CUT = struct.Struct("<d"), struct.Struct("<q")


class RecordedSlice(Recorded):
    """A slice as it is at a cut; once it is settled, `state` has what `Slice.load_state` needs."""

    def __init__(self, fork: Slice) -> None:
        super().__init__(fork.weights_P)
        self.slice = fork
        self.state: dict[str, object] = {}

    def settle(self) -> None:
        """No further gradient is from before the cut."""
        self.state.update(self.slice.state())
        self.settled.set()


class AsynchronousServer(Server):
    """Steps on every gradient as it comes, and answers it with the weights."""

    def __init__(self, kept: Slice, num_learners: int, message_type: torch.dtype) -> None:
        super().__init__(kept, num_learners, message_type)
        own = message_type == torch.float32
        self.received_P = kept.gradients_P if own else torch.zeros_like(kept.gradients_P, dtype=message_type)
        self.lock = threading.Lock()  # of all that follows, and of the slice
        self.note: Note = no_note  # of steps
        self.passed = [0] * num_learners  # the last cut that each has come to
        self.open: dict[int, RecordedSlice] = {}  # by cut, until all have come to it

    def record(self, cut: int) -> RecordedSlice:
        """The slice at `cut`, to be asked for before the learner beside the server lets it know that it is there."""
        with self.lock:
            return self._record(cut)

    def is_settled(self, recorded: RecordedSlice) -> bool:
        """Whether all gradients from before its cut are in it; raises what has ended the server."""
        if self.error:
            raise self.error
        return recorded.settled.is_set()

    def _follow(self, rank: int, order: bytes) -> None:
        if order == PASSED:
            (cut,) = CUT.unpack(self.socket.recv())
            with self.lock:
                self._record(cut)
                self.passed[rank] = cut
                self._settle()
            return
        (rate,) = RATE.unpack(self.socket.recv())
        self.socket.recv_into(as_bytes(self.received_P))
        if self.received_P is not self.slice.gradients_P:
            self.slice.gradients_P.copy_(self.received_P)
        with self.lock:
            self._step(rank, rate)
            self.note("push", rank)
        self._answer([rank], self.message_P)

    def _step(self, rank: int, rate: float) -> None:
        for cut, recorded in self.open.items():
            if self.passed[rank] < cut:
                recorded.slice.gradients_P.copy_(self.slice.gradients_P)
                recorded.slice.step(rate)
        self.slice.step(rate)

    def _record(self, cut: int) -> RecordedSlice:
        recorded = self.open.get(cut)
        if recorded is None:
            recorded = self.open[cut] = RecordedSlice(self.slice.fork())
            self._settle()
        return recorded

    def _settle(self) -> None:
        for cut in [cut for cut in self.open if cut <= min(self.passed)]:
            self.open.pop(cut).settle()


class ParameterServer(Served):
    """A learner that waits for the answer to its own gradient, and for no other learner."""

    server: AsynchronousServer | None
    asynchronous = True

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context, AsynchronousServer)
        self.assignment_rule = AssignmentRule()
        if self.server:
            self.server.note = context.note
        self.update = Update(self.flat.parameters, self.optimizer, context.clip_norm, self._push, context.loss_scale)

    def step(self) -> tuple[float, StepCost]:
        self.cost = StepCost()
        norm = self.update.step()
        return norm, self.cost

    def _push(self) -> None:
        """Have the servers apply the gradients, and take the weights that result."""
        begin = time.perf_counter()
        self._fetch_gradients()
        rate = RATE.pack(self.optimizer.param_groups[0]["lr"])
        self.client.push(PUSH, rate, gradients=self.gradients_P.split(self.lengths))
        pushed = time.perf_counter()
        self._wait()
        answered = time.perf_counter()
        staleness = self._receive() - 1
        comm_s = time.perf_counter() - answered + pushed - begin
        num_bytes = self.gradients_P.nbytes + self._num_answered()
        self.cost = StepCost(comm_s, answered - pushed, num_bytes, staleness)

    def snapshot(self, cut: int) -> Snapshot:
        snapshot = Snapshot(self.statistics.state(), keeper=self.world.rank)
        if self.server:
            recorded = self.server.record(cut)
            snapshot.recorded = {"server": recorded.state}
            snapshot.values_P = recorded.values_P
            snapshot.offset = sum(self.lengths[: self.world.rank])
            snapshot.settled = functools.partial(self.server.is_settled, recorded)
        self.client.order(PASSED, CUT.pack(cut))
        return snapshot


def parameter_server(context: StrategyContext) -> Strategy:
    """`distributed.ps-async.num_servers` servers; the weights are split between them at the borders of parameters."""
    check_number(context)
    return ParameterServer(context)
