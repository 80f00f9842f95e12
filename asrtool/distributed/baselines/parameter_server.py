"""Parameter servers: learners push gradients, and take the weights that result.

`ps-async` (Dean et al. 2012): w <- w - alpha g(w'), w' being earlier weights. A server makes the
step of each gradient when it arrives. The steps that others made since w' are the staleness of a
gradient.

`ps-sync` (Li et al. 2014): w <- w - alpha mean_i g(w^i), one update for all learners. In a round a
server adds the gradients in the order of ranks, and answers with the norms of their mean. From the
norms of all servers each learner finds the norm of the whole mean, and orders the step with the
factor that clips it. After all orders the server makes one step, and answers all with the weights.

Servers hold no buffers: each learner keeps its own statistics, and their mean stands for all. With
bf16 messages a learner computes on the servers' weights rounded to bf16. The weights that stand for
all learners are not rounded.

Beside its model of P parameters a learner keeps the gradient it sends, and with bf16 messages the
weights received. All servers together keep the weights, the state of the optimizer, a gradient, and
the weights answered with.

An asynchronous checkpoint is a consistent cut (Chandy and Lamport 1985). A learner that comes to
the cut notifies the servers before its next push. At the first notice a server forks its slice,
which has all gradients so far, all from before the cut. Then it steps on both with a gradient from
before the cut, and on its own slice alone with a later one. At the notice of the last learner the
fork has all gradients from before the cut, in their order, and no later one.
"""

from __future__ import annotations

import contextlib
import functools
import math
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import zmq

from asrtool.distributed.baselines.weight_server import PULL, Client, Server, Slice, split_evenly
from asrtool.distributed.strategies.strategy import ConsensusMetrics, Snapshot, StepCost, Strategy, StrategyContext
from asrtool.distributed.strategies.update import Update, trained_parameters
from asrtool.distributed.transport.event_log import Note, no_note
from asrtool.distributed.transport.sockets import new_context
from asrtool.distributed.weights.flat import FlatWeights, OwnStatistics, as_bytes, views_of
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.distributed.world import MESSAGE_TYPES
from asrtool.errors import AsrtoolError

PUSH = b"push"  # with a gradient, to an asynchronous server with a learning rate before it
PASSED = b"passed"  # to an asynchronous server, with the number of a cut
STEP = b"step"  # to a synchronous server, with a learning rate and the factor that clips
RATE, CUT, RATE_AND_FACTOR = struct.Struct("<d"), struct.Struct("<q"), struct.Struct("<dd")
CLIP_MARGIN = 1e-6  # beside the norm, as torch's clip_grad_norm_ has it


class ServedLearner(Strategy):
    """A learner; if its rank is below the number of servers, also a server's thread."""

    def __init__(self, context: StrategyContext, make_server: Callable[[Slice, int, torch.dtype], Server]) -> None:
        """Raise AsrtoolError if there are to be more servers than learners or parameters."""
        self.task = context.task
        self.world = context.world
        self.clip_norm = context.clip_norm
        named_parameters = trained_parameters(context.model)
        num_servers, most = context.settings.num_servers, min(context.world.size, len(named_parameters))
        if num_servers > most:
            raise AsrtoolError(
                f"{context.settings.section}.num_servers is {num_servers}, with {context.world.size} learners and a "
                f"model of {len(named_parameters)} parameters",
                f"choose {most} at most: a server runs beside a learner and keeps whole parameters",
            )
        self.optimizer = context.make_optimizer(named_parameters)  # carries the learning rate, no more
        self.flat = FlatWeights(context.model, with_buffers=False)
        self.statistics = OwnStatistics(context.model, context.world)
        message_type = MESSAGE_TYPES[context.settings.message_type]
        self.rounds = message_type != torch.float32
        self.update = Update(self.flat.parameters, self.optimizer, context.clip_norm, loss_scale=context.loss_scale)
        self.gradients_P = torch.zeros(len(self.flat.weights_P), dtype=message_type)
        self.gradients = views_of(self.gradients_P, self.flat.sizes, self.flat.parameters)
        # If the model is on the host and nothing is rounded, these are the weights that it computes on.
        self.received_P = torch.zeros_like(self.gradients_P) if self.rounds else self.flat.weights_P.cpu()
        runs = split_evenly(self.flat.sizes, num_servers)
        self.lengths = [sum(self.flat.sizes[run]) for run in runs]
        self.server: Server | None = None
        if self.world.rank < len(runs):
            run = runs[self.world.rank]
            kept = Slice(named_parameters[run], self.flat.sizes[run], context.make_optimizer)
            self.server = make_server(kept, self.world.size, message_type)
        self.client: Client | None = None
        self.num_answered = 0  # bytes that the server beside this learner had sent by the last step

    def start(self) -> None:
        self.context, address = new_context(), ""
        if self.server:
            part_P = self.flat.weights_P.split(self.lengths)[self.world.rank]
            address = self.server.start(self.context, self.world.address, part_P)
        self.client = Client(self.context, self.world.rank, self.world.gather(address)[: len(self.lengths)])

    @contextlib.contextmanager
    def _exchanging(self) -> Iterator[tuple[Client, StepCost]]:
        """Take the gradients to push inside the context; after it the cost is complete."""
        assert self.client
        begin, cost = time.perf_counter(), StepCost()
        for gradient, parameter in zip(self.gradients, self.flat.parameters, strict=True):
            gradient.zero_() if parameter.grad is None else gradient.copy_(parameter.grad)
        yield self.client, cost
        cost.comm_s = time.perf_counter() - begin - cost.wait_s
        before, self.num_answered = self.num_answered, self.server.num_bytes if self.server else 0
        cost.num_bytes = self.gradients_P.nbytes + self.num_answered - before

    def _wait(self, client: Client, cost: StepCost) -> None:
        begin = time.perf_counter()
        try:
            client.wait()
        except ConnectionError:
            if self.server and self.server.error:
                raise self.server.error from None
            raise
        cost.wait_s += time.perf_counter() - begin

    def _receive(self, client: Client) -> int:
        """Take the weights, and return the steps since the last ones, the own included."""
        num_steps = client.receive(self.received_P.split(self.lengths))
        self._become(self.received_P)
        return num_steps

    def _become(self, weights_P: torch.Tensor) -> None:
        if weights_P is not self.flat.weights_P:
            self.flat.weights_P.copy_(weights_P)

    def synchronise(self) -> ConsensusMetrics:
        assert self.client
        self.world.barrier()
        self.client.order(PULL)
        self._wait(self.client, StepCost())
        self.exact_P = torch.empty(len(self.received_P)) if self.rounds else self.received_P
        self.client.receive(self.exact_P.split(self.lengths))
        self._become(self.received_P.copy_(self.exact_P))
        self.statistics.synchronise()
        self.world.barrier()
        return ConsensusMetrics(0.0, None)

    @contextlib.contextmanager
    def consensus(self) -> Iterator[None]:
        with self.statistics.consensus():
            self._become(self.exact_P)
            try:
                yield
            finally:
                self._become(self.received_P)

    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        self.statistics.load_state(learner)
        if self.server:
            self.server.slice.load_state(learner["server"])

    def load_optimizer(self, learner: dict[str, Any], shared: dict[str, Any]) -> bool:
        """Load the state of all servers or of none: slices differ with their number."""
        state = learner.get("server")
        fits = self.server is None or (state is not None and self.server.slice.fits(state))
        if not all(self.world.gather(fits)):
            return False
        if self.server and state is not None:
            self.server.slice.load_state(state)
        return True

    def close(self) -> None:
        if self.client:
            self.client.close()
            self.context.term()
            self.client = None


class AsynchronousServer(Server):
    """Server that steps on each gradient on arrival, and answers with the weights."""

    def __init__(self, kept: Slice, num_learners: int, message_type: torch.dtype) -> None:
        super().__init__(kept, num_learners, message_type)
        own = message_type == torch.float32
        self.received_P = kept.gradients_P if own else torch.zeros_like(kept.gradients_P, dtype=message_type)
        self.lock = threading.Lock()  # guards the attributes below and the slice
        self.note: Note = no_note  # logs steps
        self.passed = [0] * num_learners  # the last cut that each has come to
        self.open: dict[int, Slice] = {}  # by cut, until all have come to it

    def record(self, cut: int) -> Slice:
        """Return the slice at `cut`, before the learner beside sends its notice."""
        with self.lock:
            return self._record(cut)

    def is_settled(self, fork: Slice) -> bool:
        """Return whether it is complete; raise the error of the server, if any."""
        if self.error:
            raise self.error
        return bool(fork.recorded)

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
        for cut, fork in self.open.items():
            if self.passed[rank] < cut:
                fork.gradients_P.copy_(self.slice.gradients_P)
                fork.step(rate)
        self.slice.step(rate)

    def _record(self, cut: int) -> Slice:
        fork = self.open.get(cut)
        if fork is None:
            fork = self.open[cut] = self.slice.fork()
            self._settle()
        return fork

    def _settle(self) -> None:
        """Record the state of forks for which no further gradient is from before the cut."""
        for cut in [cut for cut in self.open if cut <= min(self.passed)]:
            fork = self.open.pop(cut)
            fork.recorded.update(fork.state())


class ParameterServer(ServedLearner):
    """A learner that waits for the answer to its own gradient alone."""

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
        """Push the gradients to the servers, and take the resulting weights."""
        with self._exchanging() as (client, self.cost):
            rate = RATE.pack(self.optimizer.param_groups[0]["lr"])
            client.push(PUSH, rate, gradients=self.gradients_P.split(self.lengths))
            self._wait(client, self.cost)
            self.cost.staleness = self._receive(client) - 1

    def snapshot(self, cut: int) -> Snapshot:
        assert self.client
        snapshot = Snapshot(self.statistics.state(), keeper=self.world.rank)
        if self.server:
            fork = self.server.record(cut)
            snapshot.recorded = {"server": fork.recorded}
            snapshot.values_P = fork.weights_P
            snapshot.offset = sum(self.lengths[: self.world.rank])
            snapshot.settled = functools.partial(self.server.is_settled, fork)
        self.client.order(PASSED, CUT.pack(cut))
        return snapshot


class SynchronousServer(Server):
    """Server that steps on the mean of all gradients; early ones wait."""

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
            rate, factor = RATE_AND_FACTOR.unpack(frame.bytes)  # all learners send the same
            self.slice.gradients_P *= factor
            self.slice.step(rate)
            self._answer(range(self.num_learners), self.message_P)

    def _add(self) -> None:
        """Add the gradients in turn; after the last, answer with norms."""
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


class SynchronousParameterServer(ServedLearner):
    """A learner that waits for all others at every step."""

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context, SynchronousServer)
        self.assignment_rule = AssignmentRule(group_size=self.world.size, lockstep=True)

    def step(self) -> tuple[float, StepCost]:
        scale = self.update.loss_scale
        with self._exchanging() as (client, cost):
            if scale:
                self.gradients_P /= scale.value
            client.push(PUSH, gradients=self.gradients_P.split(self.lengths))
            self._wait(client, cost)
            norms = [torch.frombuffer(bytearray(part), dtype=torch.float32) for part in client.answers()]
            norm = float(whole := torch.linalg.vector_norm(torch.cat(norms)))
            if scale:
                scale.note(norm)
            if math.isfinite(norm) and norm > 0:
                factor = float((self.clip_norm / (whole + CLIP_MARGIN)).clamp(max=1.0))
                client.order(STEP, RATE_AND_FACTOR.pack(self.optimizer.param_groups[0]["lr"], factor))
                self._wait(client, cost)
                self._receive(client)
        self.optimizer.zero_grad(set_to_none=True)
        return norm, cost

    def snapshot(self, cut: int) -> Snapshot:
        learner: dict[str, Any] = self.statistics.state()
        if self.server:
            learner |= {"server": self.server.slice.state()}
        return Snapshot(learner, keeper=self.world.rank)
