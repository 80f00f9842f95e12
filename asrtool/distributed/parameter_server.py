"""Asynchronous SGD with a parameter server (Dean et al. 2012): w <- w - alpha g(w'), w' being weights of before.

The weights lie in servers, each of which holds a run of whole parameters and is a thread beside a learner. A learner
pushes its clipped gradient and waits for the weights that result from it. A server makes the step of each gradient when
it arrives; the steps that others made since the weights that a gradient was computed on are its staleness. Servers hold
no buffers: each learner keeps its own statistics, and their mean stands for all.

Of P parameters a learner keeps, beside its model: the gradient it sends. All servers together keep the weights, the
state of the optimizer, a gradient received, and the weights answered with.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import zmq
from torch import Tensor, nn

from asrtool.distributed.buffers import OwnStatistics
from asrtool.distributed.flat import FlatWeights, as_bytes, views_of
from asrtool.distributed.strategy import ConsensusMetrics, Snapshot, StepCost, Strategy, StrategyContext
from asrtool.distributed.timeout import TIMEOUT_S, wait_with_timeout
from asrtool.distributed.update import NamedParameters, Update
from asrtool.distributed.work_queue import AssignmentRule
from asrtool.distributed.world import own_address
from asrtool.errors import AsrtoolError

PULL = b""  # an order without a gradient; other orders are a learning rate, and the gradient follows
RATE = struct.Struct("<d")
COUNT = struct.Struct("<q")  # steps that a server has made, before the weights it answers with


class Server:
    """Keeps its slice of the weights with an optimizer of its own, and answers every gradient with them."""

    def __init__(
        self,
        named_parameters: NamedParameters,
        sizes: Sequence[int],
        make_optimizer: Callable[[NamedParameters], torch.optim.Optimizer],
    ) -> None:
        """`named_parameters` are those of the model that it keeps; each takes so many values (`sizes`) of a message."""
        names, parameters = zip(*named_parameters, strict=True)
        self.weights_P, self.gradients_P, self.answer_P = (torch.zeros(sum(sizes)) for _ in range(3))
        own = [nn.Parameter(view) for view in views_of(self.weights_P, sizes, parameters)]
        for parameter, gradient in zip(own, views_of(self.gradients_P, sizes, parameters), strict=True):
            parameter.grad = gradient
        self.optimizer = make_optimizer(list(zip(names, own, strict=True)))
        self.update = Update(own, self.optimizer, math.inf)  # learners have clipped
        self.num_steps = 0
        self.num_bytes = 0  # sent
        self.thread = threading.Thread(target=self._run, name="server", daemon=True)
        self.error: Exception | None = None
        self.answered: zmq.MessageTracker | None = None

    def start(self, context: zmq.Context[Any], host: str, weights_P: Tensor) -> str:
        """Begin with `weights_P`, and answer from now on at the address that is returned."""
        self.weights_P.copy_(weights_P)
        self.socket = context.socket(zmq.ROUTER)
        port = self.socket.bind_to_random_port(f"tcp://{host}")
        self.stop, self.stopped = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        self.stopped.bind("inproc://stop")
        self.stop.connect("inproc://stop")
        self.thread.start()
        return f"tcp://{host}:{port}"

    def close(self) -> None:
        """Stop answering."""
        if self.thread.is_alive():
            self.stop.send(b"")
            self.thread.join(TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # the compute thread raises it
            self.error = error
        finally:
            self.socket.close(linger=0)
            self.stopped.close(linger=0)

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self.stopped, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self.stopped in ready:
                return
            self._answer()

    def _answer(self) -> None:
        learner, order = self.socket.recv(), self.socket.recv()
        if order != PULL:
            self.socket.recv_into(as_bytes(self.gradients_P))
            self._step(RATE.unpack(order)[0])
        if self.answered:
            self.answered.wait()  # ZeroMQ may still read the last answer
        self.answer_P.copy_(self.weights_P)
        self.socket.send_multipart((learner, COUNT.pack(self.num_steps)), zmq.SNDMORE)
        self.answered = self.socket.send(as_bytes(self.answer_P), copy=False, track=True)
        self.num_bytes += self.answer_P.nbytes

    def _step(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.update.apply()
        self.num_steps += 1


class Client:
    """A learner's connections to the servers."""

    def __init__(self, context: zmq.Context[Any], addresses: Sequence[str]) -> None:
        self.sockets = [context.socket(zmq.DEALER) for _ in addresses]
        self.ends = [socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) for socket in self.sockets]
        for socket, address in zip(self.sockets, addresses, strict=True):
            socket.connect(address)
        self.counts = [0] * len(addresses)  # steps in the weights that each server sent last

    def push(self, rate: float, gradients: Sequence[Tensor]) -> None:
        """Send each server its slice, which is not to be changed before `receive` returns."""
        for socket, gradients_P in zip(self.sockets, gradients, strict=True):
            socket.send(RATE.pack(rate), zmq.SNDMORE)
            socket.send(as_bytes(gradients_P), copy=False)

    def pull(self) -> None:
        """Ask for the weights."""
        for socket in self.sockets:
            socket.send(PULL)

    def wait(self) -> None:
        """Until all have answered; ConnectionError when one does not, at once where its process has died."""
        for number, (socket, end) in enumerate(zip(self.sockets, self.ends, strict=True)):
            poller = zmq.Poller()
            poller.register(socket, zmq.POLLIN)
            poller.register(end, zmq.POLLIN)
            # An answer takes as long as the steps of the gradients before; a server that never answers is dead.
            ready = wait_with_timeout(functools.partial(_poll, poller))
            if socket not in ready:
                fault = "has ended its connection" if ready else f"has not answered for {TIMEOUT_S:g} s"
                raise ConnectionError(f"server {number} {fault}")

    def receive(self, weights: Sequence[Tensor]) -> int:
        """Put the answers into the slices `weights`; returns the most steps a server made since its last one."""
        num_steps = 0
        for number, (socket, weights_P) in enumerate(zip(self.sockets, weights, strict=True)):
            before, self.counts[number] = self.counts[number], COUNT.unpack(socket.recv())[0]
            socket.recv_into(as_bytes(weights_P))
            num_steps = max(num_steps, self.counts[number] - before)
        return num_steps


def _poll(poller: zmq.Poller, seconds: float) -> dict[Any, int]:
    """What is ready within so many seconds."""
    return dict(poller.poll(int(seconds * 1000)))


class ParameterServer(Strategy):
    """A learner, and the thread of a server beside it where its rank is below the number of servers."""

    def __init__(self, context: StrategyContext) -> None:
        self.assignment_rule = AssignmentRule()
        self.task = context.task
        self.world = context.world
        named_parameters = list(context.model.named_parameters())
        self.optimizer = context.make_optimizer(named_parameters)  # carries the learning rate, no more
        self.flat = FlatWeights(context.model, with_buffers=False)
        self.statistics = OwnStatistics(context.model, context.world)
        self.update = Update(self.flat.parameters, self.optimizer, context.clip_norm, self._push)
        self.weights_P = self.flat.weights_P.cpu()  # on the host the very same
        self.gradients_P = torch.zeros_like(self.weights_P)
        self.gradients = views_of(self.gradients_P, self.flat.sizes, self.flat.parameters)
        runs = split_evenly(self.flat.sizes, context.settings.num_servers)
        self.lengths = [sum(self.flat.sizes[run]) for run in runs]
        self.server: Server | None = None
        if self.world.rank < len(runs):
            run = runs[self.world.rank]
            self.server = Server(named_parameters[run], self.flat.sizes[run], context.make_optimizer)
        self.context: zmq.Context[Any] | None = None
        self.num_answered = 0  # bytes that the server beside this learner had sent by the last step

    def start(self) -> None:
        self.context = zmq.Context()
        host, address = own_address(self.world), ""
        if self.server:
            part_P = self.flat.weights_P.split(self.lengths)[self.world.rank]
            address = self.server.start(self.context, host, part_P)
        self.client = Client(self.context, self.world.gather(address)[: len(self.lengths)])

    def step(self) -> tuple[float, StepCost]:
        self.cost = StepCost()
        norm = self.update.step()
        return norm, self.cost

    def _push(self) -> None:
        """Have the servers apply the gradients, and take the weights that result."""
        begin = time.perf_counter()
        for gradient, parameter in zip(self.gradients, self.flat.parameters, strict=True):
            gradient.zero_() if parameter.grad is None else gradient.copy_(parameter.grad)
        self.client.push(self.optimizer.param_groups[0]["lr"], self.gradients_P.split(self.lengths))
        pushed = time.perf_counter()
        self._wait()
        answered = time.perf_counter()
        staleness = self._receive() - 1
        comm_s = time.perf_counter() - answered + pushed - begin
        num_bytes = self.gradients_P.nbytes + self._num_answered()
        self.cost = StepCost(comm_s, answered - pushed, num_bytes, staleness)

    def _wait(self) -> None:
        try:
            self.client.wait()
        except ConnectionError:
            if self.server and self.server.error:
                raise self.server.error from None
            raise

    def _receive(self) -> int:
        """Take the weights received, and return how many steps, this learner's among them, were made since the last."""
        num_steps = self.client.receive(self.weights_P.split(self.lengths))
        self.flat.weights_P.copy_(self.weights_P)
        return num_steps

    def _num_answered(self) -> int:
        """Bytes that the server here has sent since the last call."""
        before, self.num_answered = self.num_answered, self.server.num_bytes if self.server else 0
        return self.num_answered - before

    def synchronise(self) -> ConsensusMetrics:
        """All take the weights after the last step of all; nothing is under way, since `step` waits."""
        self.world.barrier()
        self.client.pull()
        self._wait()
        self._receive()
        self.statistics.synchronise()
        self.world.barrier()
        return ConsensusMetrics(0.0, None)

    def consensus(self) -> contextlib.AbstractContextManager[None]:
        return self.statistics.consensus()

    def snapshot(self, cut: int) -> Snapshot:
        learner = self.statistics.state()
        if self.server:
            learner |= {"optimizer": self.server.optimizer.state_dict(), "num_steps": self.server.num_steps}
        return Snapshot(learner, keeper=self.world.rank)

    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        self.statistics.load_state(learner)
        if self.server:
            self.server.optimizer.load_state_dict(learner["optimizer"])
            self.server.num_steps = learner["num_steps"]

    def close(self) -> None:
        if self.server:
            self.server.close()
        if self.context:
            self.context.destroy(linger=0)


def split_evenly(sizes: Sequence[int], num_runs: int) -> list[slice]:
    """Runs of one or more of `sizes`, one after another, with sums that are about even."""
    ends = list(itertools.accumulate(sizes))
    cuts = [0]
    for number in range(1, num_runs):
        wanted = ends[-1] * number / num_runs
        free = range(cuts[-1] + 1, len(sizes) - (num_runs - number) + 1)
        cuts.append(min(free, key=lambda cut: abs(ends[cut - 1] - wanted)))
    return [slice(first, end) for first, end in zip(cuts, [*cuts[1:], len(sizes)], strict=True)]


def parameter_server(context: StrategyContext) -> Strategy:
    """`distributed.ps-async.num_servers` servers; the weights are split between them at the borders of parameters."""
    num_servers = context.settings.num_servers
    most = min(context.world.size, len(list(context.model.parameters())))
    if num_servers > most:
        raise AsrtoolError(
            f"distributed.ps-async.num_servers is {num_servers}, with {context.world.size} learners and a model of "
            f"{len(list(context.model.parameters()))} parameters",
            f"choose {most} at most: a server runs beside a learner and keeps whole parameters",
        )
    return ParameterServer(context)
