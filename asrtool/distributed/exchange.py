"""Exchanges of gossip views between learners, over ZeroMQ: one thread and one listening socket a learner."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import zmq
from torch import Tensor

from asrtool.distributed.flat import as_bytes
from asrtool.distributed.timeout import TIMEOUT_S, wait_with_timeout
from asrtool.distributed.view import View

STOP = b"stop"  # other orders are the number of a neighbour
CUT = struct.Struct("<q")  # the last cut of the learner that asks, before its snapshot
REFUSED = b""  # an answer without a snapshot
LOOK_MS = 500  # an exchange with a learner that is lost is abandoned so soon after the loss is known


@dataclass(frozen=True)
class Address:
    """Where a learner answers."""

    machine: str  # on which `local` can be reached, nothing where that cannot be known
    local: str  # by a Unix socket, which takes 2.4 ms of CPU time for 9 MB there and back, where TCP takes 6.5
    remote: str


def this_machine() -> str:
    """The same for all processes that see one another's Unix sockets without a name in any folder; of Linux alone."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return boot + os.readlink("/proc/self/ns/net")
    except OSError:
        return ""


class Exchanger:
    """Answers the exchanges that others begin with `view`, and carries out those begun here, one at a time.

    A connection is opened at the first exchange with a neighbour and kept. An error in the thread is raised by
    the next call.
    """

    def __init__(self, view: View, weight: float, host: str = "127.0.0.1") -> None:
        """Listen on a free port of `host`; `weight` is that of an exchange, the same for all learners."""
        self.view = view
        self.weight = weight
        self.mine_P, self.answer_P = (torch.empty_like(view.v_P, dtype=view.message_type) for _ in range(2))
        self.partners: list[int] = []  # of the exchanges begun here and done, since `take_partners`
        self.num_refused = 0  # of those begun here, with those abandoned
        self.num_bytes = 0  # sent
        self.asked = -1
        self.idle = threading.Event()
        self.idle.set()
        self.error: Exception | None = None
        self.context = zmq.Context()
        self.answers = self.context.socket(zmq.ROUTER)
        port = self.answers.bind_to_random_port(f"tcp://{host}")
        self.address = Address(this_machine(), f"ipc://@asrtool-{os.getpid()}-{port}", f"tcp://{host}:{port}")
        if self.address.machine:
            self.answers.bind(self.address.local)
        self.addresses: Mapping[int, Address] = {}
        self.is_live: Callable[[int], bool] = lambda _: True  # whether a learner is not lost
        self.requests: dict[int, zmq.Socket[bytes]] = {}
        self.answered: zmq.MessageTracker | None = None
        self.poller = zmq.Poller()
        self.orders, self.commands = self.context.socket(zmq.PAIR), self.context.socket(zmq.PAIR)
        self.orders.bind("inproc://orders")
        self.commands.connect("inproc://orders")
        self.thread = threading.Thread(target=self._run, name="gossip", daemon=True)
        self.thread.start()

    def begin(self, neighbour: int) -> bool:
        """Begin an exchange with `neighbour`; False, and none begun, when the last one is still under way."""
        self._check()
        if not self.idle.is_set():
            return False
        self.idle.clear()
        self.commands.send(str(neighbour).encode())
        return True

    def finish(self) -> None:
        """Wait for the exchange under way; ConnectionError when the neighbour does not answer."""
        # An answer takes milliseconds, on a busy machine seconds; a learner that never answers is dead.
        answered = wait_with_timeout(self.idle.wait)
        self._check()
        if not answered:
            raise ConnectionError(f"learner {self.asked} has not answered for {TIMEOUT_S:g} s")

    def take_partners(self) -> list[int]:
        """With whom exchanges begun here were done since the last call."""
        partners, self.partners = self.partners, []
        return partners

    def close(self) -> None:
        """Stop answering. All learners finish their exchanges first: one under way would wait for its answer."""
        if self.thread.is_alive():
            self.commands.send(STOP)
        self.thread.join(TIMEOUT_S)
        self.commands.close()
        self.context.destroy(linger=0)

    def _check(self) -> None:
        if self.error:
            raise self.error

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # the compute thread raises it
            self.error = error
        finally:
            self.idle.set()
            for socket in (self.answers, self.orders, *self.requests.values()):
                socket.close(linger=1000)

    def _serve(self) -> None:
        self.poller.register(self.orders, zmq.POLLIN)
        self.poller.register(self.answers, zmq.POLLIN)
        while True:
            self._abandon_lost()
            for socket, _ in self.poller.poll(LOOK_MS):
                if socket is self.answers:
                    self._answer()
                elif socket is not self.orders:
                    self._take_answer(socket)
                elif (order := self.orders.recv()) == STOP:
                    return
                else:
                    self._ask(int(order))

    def _ask(self, neighbour: int) -> None:
        if neighbour not in self.requests:
            socket = self.requests[neighbour] = self.context.socket(zmq.DEALER)
            address = self.addresses[neighbour]
            is_here = address.machine and address.machine == self.address.machine
            socket.connect(address.local if is_here else address.remote)
            self.poller.register(socket, zmq.POLLIN)
        self.asked = neighbour
        cut = self.view.ask(self.mine_P)
        self.requests[neighbour].send(CUT.pack(cut), zmq.SNDMORE)
        self.requests[neighbour].send(as_bytes(self.mine_P), copy=False)
        self.num_bytes += self.mine_P.nbytes

    def _abandon_lost(self) -> None:
        """Close the connections to learners that are lost; no answer of theirs is taken any more."""
        for learner in [learner for learner in self.requests if not self.is_live(learner)]:
            socket = self.requests.pop(learner)
            self.poller.unregister(socket)
            socket.close(linger=0)
            if learner == self.asked and not self.idle.is_set():
                self._end_without_answer()

    def _end_without_answer(self) -> None:
        self.view.refused()
        self.num_refused += 1
        self.idle.set()

    def _take_answer(self, socket: zmq.Socket[bytes]) -> None:
        answer = socket.recv(copy=False)
        if len(answer):
            self.view.pull(self.mine_P, self._snapshot(answer), self.weight)
            self.partners.append(self.asked)
            self.idle.set()
        else:
            self._end_without_answer()

    def _snapshot(self, message: zmq.Frame) -> Tensor:
        """What a message holds, in its memory."""
        return torch.frombuffer(message.buffer, dtype=self.view.message_type)

    def _is_sent(self, answer: zmq.MessageTracker) -> bool:
        """Whether ZeroMQ does not read its memory any more."""
        try:
            answer.wait(LOOK_MS / 1000)
        except zmq.NotDone:
            return False
        return True

    def _answer(self) -> None:
        learner = self.answers.recv()
        (cut,) = CUT.unpack(self.answers.recv())
        theirs_P = self._snapshot(self.answers.recv(copy=False))
        if self.answered and not self._is_sent(self.answered):
            self.answer_P = torch.empty_like(self.answer_P)  # who got the last answer may be lost, and not take it
        self.answers.send(learner, zmq.SNDMORE)
        if not self.view.answer(theirs_P, self.answer_P, self.weight, cut):
            self.answers.send(REFUSED)
            return
        self.answered = self.answers.send(as_bytes(self.answer_P), copy=False, track=True)
        self.num_bytes += self.answer_P.nbytes
