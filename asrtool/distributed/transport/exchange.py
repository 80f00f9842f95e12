"""Exchanges of gossip views between learners, over ZeroMQ: one thread and one listening socket a learner.

Learners of one machine find the message in shared memory, and send one another where; others send the message.
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import zmq
from torch import Tensor

from asrtool.distributed.launch.addresses import new_context, url_of
from asrtool.distributed.members.timeout import TIMEOUT_S, wait_with_timeout
from asrtool.distributed.transport.event_log import Note, no_note
from asrtool.distributed.transport.message import Message, is_there, map_message
from asrtool.distributed.transport.view import View
from asrtool.distributed.weights.flat import as_bytes

STOP = b"stop"  # other orders are the number of a neighbour
NUM_STEPS = struct.Struct("<q")
LOOK = b"look"  # in place of a cut: the weights are asked for, and no exchange
ASKED = struct.Struct("<q?q")  # of who asks: its last cut, whether the path of its snapshot follows, its rank
DONE, REFUSED, UNSEEN = b"done", b"refused", b"unseen"  # of an answer; the last where the path leads nowhere
LOOK_MS = 500  # an exchange with a learner that is lost is abandoned so soon after the loss is known


@dataclass(frozen=True)
class Address:
    """Where a learner answers."""

    machine: str  # on which `local` can be reached, nothing where that cannot be known
    local: str  # by a Unix socket
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
        self.message = self._new_message()
        self.seen: dict[bytes, tuple[str, Tensor | None]] = {}  # those of others, by their connection
        self.blind: set[int] = set()  # neighbours that cannot see that of this one
        self.partners: list[int] = []  # of the exchanges begun here and done, since `take_partners`
        self.num_refused = 0  # of those begun here, with those abandoned
        self.num_bytes = 0  # of the messages of this learner, sent or left in memory
        self.asked = -1
        self.idle = threading.Event()
        self.idle.set()
        self.error: Exception | None = None
        self.context = new_context()
        self.answers = self.context.socket(zmq.ROUTER)
        url = url_of(host)
        port = self.answers.bind_to_random_port(url)
        self.address = Address(this_machine(), f"ipc://@asrtool-{os.getpid()}-{port}", f"{url}:{port}")
        if self.address.machine:
            self.answers.bind(self.address.local)
        self.addresses: dict[int, Address] = {}
        self.num_steps = 0  # of this learner, for one that joins
        self.rank = 0  # of this learner
        self.note: Note = no_note  # of exchanges, and with whom
        self.is_live: Callable[[int], bool] = lambda _: True  # whether a learner is not lost
        self.requests: dict[int, zmq.Socket[bytes]] = {}
        self.poller = zmq.Poller()
        self.orders, self.commands = self.context.socket(zmq.PAIR), self.context.socket(zmq.PAIR)
        self.orders.bind("inproc://orders")
        self.commands.connect("inproc://orders")
        self.thread = threading.Thread(target=self._run, name="gossip", daemon=True)
        self.thread.start()

    def begin(self, neighbour: int) -> bool:
        """Begin an exchange with `neighbour`; False, and none begun, when the last one is still under way."""
        self.check()
        if not self.idle.is_set():
            return False
        self.idle.clear()
        self.commands.send(str(neighbour).encode())
        return True

    def finish(self) -> None:
        """Wait for the exchange under way; ConnectionError when the neighbour does not answer."""
        # An answer takes milliseconds, on a busy machine seconds; a learner that never answers is dead.
        answered = wait_with_timeout(self.idle.wait)
        self.check()
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
        self.message.close()

    def check(self) -> None:
        """Raises the error of the thread, if it has ended by one."""
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
            socket.connect(address.local if self._is_here(neighbour) else address.remote)
            self.poller.register(socket, zmq.POLLIN)
        self.asked = neighbour
        is_seen = self._is_here(neighbour) and neighbour not in self.blind and bool(self.message.path)
        message_P = self.message.values_P
        with self.view.lock:
            cut = self.view.ask(message_P)
            self.note("send", neighbour)
        self.requests[neighbour].send(ASKED.pack(cut, is_seen, self.rank), zmq.SNDMORE)
        if is_seen:
            self.requests[neighbour].send_string(self.message.path)
        else:
            self.requests[neighbour].send(as_bytes(message_P), copy=False)
        self.num_bytes += message_P.nbytes

    def _is_here(self, neighbour: int) -> bool:
        machine = self.addresses[neighbour].machine
        return bool(machine) and machine == self.address.machine

    def _abandon_lost(self) -> None:
        """Close the connections to learners that are lost; no answer of theirs is taken any more."""
        for learner in [learner for learner in self.requests if not self.is_live(learner)]:
            socket = self.requests.pop(learner)
            self.poller.unregister(socket)
            socket.close(linger=0)
            if learner == self.asked and not self.idle.is_set():
                self.message.close()
                # The lost one may write its answer yet, and then not where the next one is.
                self.message = self._new_message()
                self._end_without_answer()

    def _end_without_answer(self) -> None:
        self.view.refused()
        self.num_refused += 1
        self.idle.set()

    def _take_answer(self, socket: zmq.Socket[bytes]) -> None:
        result = socket.recv()
        if result != DONE:
            if result == UNSEEN:
                self.blind.add(self.asked)
            self._end_without_answer()
            return
        is_sent = socket.getsockopt(zmq.RCVMORE)
        pull_P = self._values(socket.recv(copy=False)) if is_sent else self.message.values_P
        with self.view.lock:
            self.view.pull(pull_P)
            self.note("receive", self.asked)
        self.partners.append(self.asked)
        self.idle.set()

    def _new_message(self) -> Message:
        return Message(len(self.view.weights_P), self.view.message_type)

    def _values(self, message: zmq.Frame) -> Tensor:
        """What a message holds, in its memory."""
        return torch.frombuffer(message.buffer, dtype=self.view.message_type)

    def _answer(self) -> None:
        learner, what = self.answers.recv(), self.answers.recv()
        if what == LOOK:
            self._show(learner)
            return
        cut, is_seen, rank = ASKED.unpack(what)
        asked = self.answers.recv(copy=False)
        message_P = self._see(learner, asked.bytes.decode()) if is_seen else self._values(asked)
        self.answers.send(learner, zmq.SNDMORE)
        if message_P is None:
            self.answers.send(UNSEEN)
        elif not self._pull_towards(message_P, cut, rank):
            self.answers.send(REFUSED)
        else:
            self.num_bytes += message_P.nbytes
            self.answers.send(DONE, 0 if is_seen else zmq.SNDMORE)
            if not is_seen:
                self.answers.send(asked, copy=False)

    def _pull_towards(self, message_P: Tensor, cut: int, rank: int) -> bool:
        with self.view.lock:
            answers = self.view.answer(message_P, self.weight, cut)
            if answers:
                self.note("answer", rank)
        return answers

    def _see(self, learner: bytes, path: str) -> Tensor | None:
        """The message that the one who asks has in memory."""
        if self.seen.get(learner, ("", None))[0] != path:
            # Memory of those that are gone is freed: over a long training many may join and leave.
            self.seen = {other: found for other, found in self.seen.items() if is_there(found[0])}
            self.seen[learner] = path, map_message(path, len(self.view.weights_P), self.view.message_type)
        return self.seen[learner][1]

    def _show(self, learner: bytes) -> None:
        """Send the weights to one that joins, and the steps that they have taken here."""
        weights_P = self.view.copy()
        self.answers.send(learner, zmq.SNDMORE)
        self.answers.send(NUM_STEPS.pack(self.num_steps), zmq.SNDMORE)
        self.answers.send(as_bytes(weights_P), copy=False)
        self.num_bytes += weights_P.nbytes


def fetch(address: Address, out_P: Tensor, wait: Callable[[int], bool]) -> int | None:
    """Copy the weights of the learner at `address` to `out_P`; the steps of that learner.

    None if it has not answered while `wait`, asked every LOOK_MS with a number from 1 on, was true.
    """
    with new_context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        is_here = address.machine and address.machine == this_machine()
        socket.connect(address.local if is_here else address.remote)
        socket.send(LOOK)
        for num_looks in itertools.count(1):
            if socket.poll(LOOK_MS):
                break
            if not wait(num_looks):
                return None
        (num_steps,) = NUM_STEPS.unpack(socket.recv())
        out_P.copy_(torch.frombuffer(socket.recv(copy=False).buffer, dtype=torch.float32))
        return int(num_steps)
