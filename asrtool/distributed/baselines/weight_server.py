"""Servers of weights, and the connections of a learner to them.

The weights lie in servers. Each holds a run of whole parameters, a slice, and is a thread beside a
learner. Gradients come and weights go in the format of messages; a server keeps and changes its
slice in float32. The strategies in parameter_server decide what a server does with a gradient.
"""

from __future__ import annotations

import copy
import itertools
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import zmq
from torch import Tensor, nn

from asrtool.distributed.strategies.update import NamedParameters
from asrtool.distributed.transport.sockets import ANSWER_TIMEOUT_S, url_of, wait_for_answer
from asrtool.distributed.weights.flat import as_bytes, views_of

PULL = b"pull"  # order to a server: answer with the weights in float32; strategies add orders
COUNT = struct.Struct("<q")  # steps that a server has made, before the weights it answers with


class Slice:
    """A run of parameters in `weights_P`, and the optimizer of their gradients."""

    def __init__(
        self,
        named_parameters: NamedParameters,
        sizes: Sequence[int],
        make_optimizer: Callable[[NamedParameters], torch.optim.Optimizer],
    ) -> None:
        """Take the parameters of the model that lie here, and their numbers of values."""
        self._made_of = named_parameters, sizes, make_optimizer
        names, parameters = zip(*named_parameters, strict=True)
        self.weights_P, self.gradients_P = (torch.zeros(sum(sizes)) for _ in range(2))
        self.gradients = views_of(self.gradients_P, sizes, parameters)
        own = [nn.Parameter(view) for view in views_of(self.weights_P, sizes, parameters)]
        for parameter, gradient in zip(own, self.gradients, strict=True):
            parameter.grad = gradient
        self.optimizer = make_optimizer(list(zip(names, own, strict=True)))
        self.num_steps = 0
        self.recorded: dict[str, Any] = {}  # last state of a fork, once there is one

    def step(self, rate: float) -> None:
        """Make one step of the optimizer on `gradients_P`, which learners have clipped."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.num_steps += 1

    def fork(self) -> Slice:
        """Copy this slice as it is now."""
        other = Slice(*self._made_of)
        other.weights_P.copy_(self.weights_P)
        other.load_state(copy.deepcopy(self.state()))
        return other

    def state(self) -> dict[str, Any]:
        """Return the state for `load_state`, without the weights."""
        return {"optimizer": self.optimizer.state_dict(), "num_steps": self.num_steps}

    def fits(self, state: dict[str, Any]) -> bool:
        """Return whether `state` is of a slice with the same parameters."""
        saved = state["optimizer"]
        own = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return len(own) == sum(len(group["params"]) for group in saved["param_groups"]) and all(
            moment.shape == own[number].shape
            for number, moments in saved["state"].items()
            for moment in moments.values()
            if isinstance(moment, Tensor) and moment.dim()
        )

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.num_steps = state["num_steps"]


class Server(ABC):
    """A thread that keeps a slice and follows the orders of learners, one by one."""

    def __init__(self, kept: Slice, num_learners: int, message_type: torch.dtype) -> None:
        self.slice = kept
        self.num_learners = num_learners
        self.message_P = torch.zeros_like(kept.weights_P, dtype=message_type)  # answered with
        self.num_bytes = 0  # sent
        self.error: Exception | None = None
        self.answered: list[zmq.MessageTracker] = []

    def start(self, context: zmq.Context[Any], host: str, weights_P: Tensor) -> str:
        """Begin with `weights_P`, and return the address at which it answers.

        The thread ends with `context`.
        """
        self.slice.weights_P.copy_(weights_P)
        self.socket = context.socket(zmq.ROUTER)
        port = self.socket.bind_to_random_port(url_of(host))
        threading.Thread(target=self._serve, name="server", daemon=True).start()
        return f"{url_of(host)}:{port}"

    @abstractmethod
    def _follow(self, rank: int, order: bytes) -> None:
        """Follow an order of learner `rank`, with arguments in the next frames."""

    def _serve(self) -> None:
        try:
            while True:
                rank, order = int(self.socket.recv()), self.socket.recv()
                if order == PULL:
                    self._answer([rank], torch.empty_like(self.slice.weights_P))
                else:
                    self._follow(rank, order)
        except zmq.ContextTerminated:
            pass
        except Exception as error:  # the compute thread raises it
            self.error = error
        finally:
            self.socket.close(linger=0)

    def _answer(self, ranks: Sequence[int], out_P: Tensor) -> None:
        """Send these learners the weights, in the memory and the format of `out_P`."""
        for tracker in self.answered:
            tracker.wait()  # ZeroMQ may still read the last answer
        out_P.copy_(self.slice.weights_P)
        self.answered = []
        for rank in ranks:
            self.num_bytes += out_P.nbytes  # before the learner has the answer
            self.socket.send_multipart((name_of(rank), COUNT.pack(self.slice.num_steps)), zmq.SNDMORE)
            self.answered.append(self.socket.send(as_bytes(out_P), copy=False, track=True))

    def _send(self, rank: int, answer: bytes) -> None:
        """Answer learner `rank` with bytes instead of weights."""
        self.socket.send_multipart((name_of(rank), answer))


class Client:
    """Connections of learner `rank` to the servers."""

    def __init__(self, context: zmq.Context[Any], rank: int, addresses: Sequence[str]) -> None:
        self.sockets = [context.socket(zmq.DEALER) for _ in addresses]
        self.ends = [socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) for socket in self.sockets]
        for socket, address in zip(self.sockets, addresses, strict=True):
            socket.setsockopt(zmq.IDENTITY, name_of(rank))
            socket.connect(address)
        self.counts = [0] * len(addresses)  # steps in the weights that each server sent last

    def order(self, *frames: bytes) -> None:
        """Send all servers the same frames."""
        for socket in self.sockets:
            socket.send_multipart(frames)

    def push(self, *frames: bytes, gradients: Sequence[Tensor]) -> None:
        """Send each server `frames` and its slice, which must not change before an answer."""
        for socket, gradients_P in zip(self.sockets, gradients, strict=True):
            socket.send_multipart(frames, zmq.SNDMORE)
            socket.send(as_bytes(gradients_P), copy=False)

    def wait(self) -> None:
        """Wait until all have answered; ConnectionError if one does not or has died."""
        for number, (socket, end) in enumerate(zip(self.sockets, self.ends, strict=True)):
            poller = zmq.Poller()
            poller.register(socket, zmq.POLLIN)
            poller.register(end, zmq.POLLIN)
            # An answer takes as long as the steps of the gradients before; a server that never answers is dead.
            ready = wait_for_answer(lambda seconds: dict(poller.poll(int(seconds * 1000))))  # noqa: B023
            if socket not in ready:
                fault = "has ended its connection" if ready else f"has not answered for {ANSWER_TIMEOUT_S:g} s"
                raise ConnectionError(f"server {number} {fault}")

    def answers(self) -> list[bytes]:
        """Receive the answers that are bytes instead of weights."""
        return [socket.recv() for socket in self.sockets]

    def receive(self, weights: Sequence[Tensor]) -> int:
        """Receive the answers; return the most steps that a server made since its last."""
        num_steps = 0
        for number, (socket, weights_P) in enumerate(zip(self.sockets, weights, strict=True)):
            before, self.counts[number] = self.counts[number], COUNT.unpack(socket.recv())[0]
            socket.recv_into(as_bytes(weights_P))
            num_steps = max(num_steps, self.counts[number] - before)
        return num_steps

    def close(self) -> None:
        """Close the connections, dropping unsent messages."""
        for socket in (*self.sockets, *self.ends):
            socket.close(linger=0)


def name_of(rank: int) -> bytes:
    """Return the name of a learner at the servers."""
    return b"%d" % rank


def split_evenly(sizes: Sequence[int], num_runs: int) -> list[slice]:
    """Split `sizes` into runs of one or more neighbours with about even sums."""
    ends = list(itertools.accumulate(sizes))
    cuts = [0]
    for number in range(1, num_runs):
        wanted = ends[-1] * number / num_runs
        free = range(cuts[-1] + 1, len(sizes) - (num_runs - number) + 1)
        cuts.append(min(free, key=lambda cut: abs(ends[cut - 1] - wanted)))
    return [slice(first, end) for first, end in zip(cuts, [*cuts[1:], len(sizes)], strict=True)]
