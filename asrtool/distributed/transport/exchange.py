"""Exchanges of gossip views between learners, over ZeroMQ.

A learner has one thread and one listening socket. The learner that begins an exchange sends a
snapshot of its view, and the pull comes back in its place (see view). It has one exchange of its
own under way at a time, so it keeps memory for one message. A learner of the same machine maps this
memory, and only its path is sent; others are sent the message. The memory has no name in any
folder, so the system frees it with the last process that maps it.
"""

from __future__ import annotations

import contextlib
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

from asrtool.distributed.transport.event_log import Note, no_note
from asrtool.distributed.transport.sockets import ANSWER_TIMEOUT_S, new_context, url_of, wait_for_answer
from asrtool.distributed.transport.view import View
from asrtool.distributed.weights.flat import as_bytes

STOP = b"stop"  # other orders are the number of a partner
NUM_STEPS = struct.Struct("<q")
FETCH = b"fetch"  # in place of a request, from a learner that joins: send the weights
REQUEST = struct.Struct("<q?q")  # the last cut of the sender, whether the message is in shared memory, its rank
DONE, REFUSED, UNMAPPED = b"done", b"refused", b"unmapped"  # answers; the last if the memory cannot be mapped
POLL_MS = 500  # delay until an exchange with a lost learner is abandoned


class Message:
    """Memory for `values_P` at `path`; the path is empty if none can map it."""

    def __init__(self, num_values: int, message_type: torch.dtype) -> None:
        self.path, self.file = "", -1
        if hasattr(os, "memfd_create"):  # Linux alone
            self.file = os.memfd_create("asrtool")
            place = f"/proc/{os.getpid()}/fd/{self.file}"
            self.path = f"{place}:{_inode(place)}"
        mapped_P = map_message(self.path, num_values, message_type)
        self.values_P = torch.empty(num_values, dtype=message_type) if mapped_P is None else mapped_P
        self.values_P.zero_()  # takes the memory now, and not in the first steps

    def close(self) -> None:
        """Remove the name of the memory; processes that have mapped it keep it."""
        if self.path:
            os.close(self.file)
            self.path = ""


def map_message(path: str, num_values: int, message_type: torch.dtype) -> Tensor | None:
    """Map the message of another learner; None if this process cannot see it.

    The same path may be another file: later, or in a container.
    """
    place, _, inode = path.rpartition(":")
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError of torch
        if _inode(place) == inode:
            return torch.from_file(place, shared=True, size=num_values, dtype=message_type)
    return None


def _inode(place: str) -> str:
    found = os.stat(place)
    return f"{found.st_dev}-{found.st_ino}"


@dataclass(frozen=True)
class Address:
    """Sockets at which a learner answers."""

    machine: str  # on which `local` can be reached; empty if unknown
    local: str  # a Unix socket
    remote: str


def this_machine() -> str:
    """Identify the processes that share abstract Unix sockets; empty except on Linux."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return boot + os.readlink("/proc/self/ns/net")
    except OSError:
        return ""


@dataclass(eq=False)
class Exchanger:
    """Thread that answers exchanges, and carries out those begun here, one at a time.

    It listens on a free port of `host`. A connection is opened at the first exchange with a partner
    and kept. An error in the thread is raised by the next call.
    """

    view: View
    weight: float  # the same at all learners
    host: str = "127.0.0.1"
    rank: int = 0
    note: Note = no_note  # logs exchanges and with whom
    is_live: Callable[[int], bool] = lambda _: True  # returns whether a learner is not lost

    def __post_init__(self) -> None:
        self.message = self._new_message()
        self.mapped: dict[int, tuple[str, Tensor | None]] = {}  # path and message of others
        self.unmapped: set[int] = set()  # partners that cannot map the message of this learner
        self.partners: list[int] = []  # partners of exchanges begun here and done since `take_partners`
        self.num_refused = 0  # exchanges begun here and refused or abandoned
        self.num_bytes = 0  # bytes of this learner's messages, sent or left in memory
        self.num_steps = 0  # steps of this learner, for one that joins
        self.partner = -1  # partner of the last exchange begun here
        self.idle = threading.Event()
        self.idle.set()
        self.error: Exception | None = None
        self.context = new_context()
        self.answers = self.context.socket(zmq.ROUTER)
        url = url_of(self.host)
        port = self.answers.bind_to_random_port(url)
        self.address = Address(this_machine(), f"ipc://@asrtool-{os.getpid()}-{port}", f"{url}:{port}")
        if self.address.machine:
            self.answers.bind(self.address.local)
        self.addresses: dict[int, Address] = {}
        self.requests: dict[int, zmq.Socket[bytes]] = {}
        self.poller = zmq.Poller()
        self.orders, self.commands = self.context.socket(zmq.PAIR), self.context.socket(zmq.PAIR)
        self.orders.bind("inproc://orders")
        self.commands.connect("inproc://orders")
        self.thread = threading.Thread(target=self._run, name="gossip", daemon=True)
        self.thread.start()

    def begin(self, partner: int) -> bool:
        """Begin an exchange with `partner`; False if the last one is still under way."""
        self.check()
        if not self.idle.is_set():
            return False
        self.idle.clear()
        self.commands.send(str(partner).encode())
        return True

    def wait(self) -> None:
        """Wait for the exchange under way; ConnectionError if the partner does not answer."""
        # An answer takes milliseconds, on a busy machine seconds; a learner that never answers is dead.
        answered = wait_for_answer(self.idle.wait)
        self.check()
        if not answered:
            raise ConnectionError(f"learner {self.partner} has not answered for {ANSWER_TIMEOUT_S:g} s")

    def take_partners(self) -> list[int]:
        """Return the partners of exchanges begun here and done since the last call."""
        partners, self.partners = self.partners, []
        return partners

    def close(self) -> None:
        """Stop answering. All learners wait for their exchanges first."""
        if self.thread.is_alive():
            self.commands.send(STOP)
        self.thread.join(ANSWER_TIMEOUT_S)
        self.commands.close()
        self.context.destroy(linger=0)
        self.message.close()

    def check(self) -> None:
        """Raise the error of the thread, if there was one."""
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
            self._forget_lost()
            for socket, _ in self.poller.poll(POLL_MS):
                if socket is self.answers:
                    self._answer()
                elif socket is not self.orders:
                    self._take_answer(socket)
                elif (order := self.orders.recv()) == STOP:
                    return
                else:
                    self._request(int(order))

    def _request(self, partner: int) -> None:
        address = self.addresses[partner]
        is_here = bool(address.machine) and address.machine == self.address.machine
        if partner not in self.requests:
            socket = self.requests[partner] = self.context.socket(zmq.DEALER)
            socket.connect(address.local if is_here else address.remote)
            self.poller.register(socket, zmq.POLLIN)
        self.partner = partner
        is_shared = is_here and partner not in self.unmapped and bool(self.message.path)
        message_P = self.message.values_P
        with self.view.lock:
            cut = self.view.ask(message_P)
            self.note("send", partner)
        self.requests[partner].send(REQUEST.pack(cut, is_shared, self.rank), zmq.SNDMORE)
        if is_shared:
            self.requests[partner].send_string(self.message.path)
        else:
            self.requests[partner].send(as_bytes(message_P), copy=False)
        self.num_bytes += message_P.nbytes

    def _forget_lost(self) -> None:
        """Close the connections to lost learners; their answers are not taken any more."""
        for learner in [learner for learner in {*self.requests, *self.mapped} if not self.is_live(learner)]:
            self.mapped.pop(learner, None)
            if learner not in self.requests:
                continue
            socket = self.requests.pop(learner)
            self.poller.unregister(socket)
            socket.close(linger=0)
            if learner == self.partner and not self.idle.is_set():
                self.message.close()
                # The lost one may still write its answer, so the next exchange gets other memory.
                self.message = self._new_message()
                self._end_without_answer()

    def _end_without_answer(self) -> None:
        self.view.refused()
        self.num_refused += 1
        self.idle.set()

    def _take_answer(self, socket: zmq.Socket[bytes]) -> None:
        result = socket.recv()
        if result != DONE:
            if result == UNMAPPED:
                self.unmapped.add(self.partner)
            self._end_without_answer()
            return
        is_sent = socket.getsockopt(zmq.RCVMORE)
        pull_P = self._values(socket.recv(copy=False)) if is_sent else self.message.values_P
        with self.view.lock:
            self.view.pull(pull_P)
            self.note("receive", self.partner)
        self.partners.append(self.partner)
        self.idle.set()

    def _new_message(self) -> Message:
        return Message(len(self.view.weights_P), self.view.message_type)

    def _values(self, frame: zmq.Frame) -> Tensor:
        return torch.frombuffer(frame.buffer, dtype=self.view.message_type)

    def _answer(self) -> None:
        connection, request = self.answers.recv(), self.answers.recv()
        if request == FETCH:
            self._send_weights(connection)
            return
        cut, is_shared, rank = REQUEST.unpack(request)
        frame = self.answers.recv(copy=False)
        message_P = self._map(rank, frame.bytes.decode()) if is_shared else self._values(frame)
        self.answers.send(connection, zmq.SNDMORE)
        if message_P is None:
            self.answers.send(UNMAPPED)
            return
        with self.view.lock:
            is_answered = self.view.answer(message_P, self.weight, cut)
            if is_answered:
                self.note("answer", rank)
        if not is_answered:
            self.answers.send(REFUSED)
            return
        self.num_bytes += message_P.nbytes
        self.answers.send(DONE, 0 if is_shared else zmq.SNDMORE)
        if not is_shared:
            self.answers.send(frame, copy=False)

    def _map(self, rank: int, path: str) -> Tensor | None:
        if self.mapped.get(rank, ("", None))[0] != path:
            self.mapped[rank] = path, map_message(path, len(self.view.weights_P), self.view.message_type)
        return self.mapped[rank][1]

    def _send_weights(self, connection: bytes) -> None:
        """Send the weights and the number of steps to a learner that joins."""
        weights_P = self.view.copy()
        self.answers.send(connection, zmq.SNDMORE)
        self.answers.send(NUM_STEPS.pack(self.num_steps), zmq.SNDMORE)
        self.answers.send(as_bytes(weights_P), copy=False)
        self.num_bytes += weights_P.nbytes


def fetch_weights(address: Address, out_P: Tensor, wait: Callable[[int], bool]) -> int | None:
    """Copy the weights of the learner at `address`; return its number of steps.

    `wait` is called every POLL_MS with a number from 1 on; once it returns False, the result is
    None.
    """
    with new_context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        is_here = address.machine and address.machine == this_machine()
        socket.connect(address.local if is_here else address.remote)
        socket.send(FETCH)
        for num_polls in itertools.count(1):
            if socket.poll(POLL_MS):
                break
            if not wait(num_polls):
                return None
        (num_steps,) = NUM_STEPS.unpack(socket.recv())
        out_P.copy_(torch.frombuffer(socket.recv(copy=False).buffer, dtype=torch.float32))
        return int(num_steps)
