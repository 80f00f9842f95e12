"""Between the weights that a learner computes on and its gossip view, which is on the host.

On the host both are the same. On a GPU a thread copies, one trip after another, by a side stream and two buffers of
pinned memory: the weights to the host, where they are published; then, after the exchange, the pulls of all exchanges
since to the GPU. At the end of a step for which both are done, the computing stream adds the pulls and copies the
weights aside, within the GPU (the swap). It waits for nothing else. A step that ends sooner swaps nothing, and its
exchange counts as skipped.
"""

from __future__ import annotations

import contextlib
import threading
from queue import SimpleQueue

import torch
from torch import Tensor

from asrtool.distributed.members.timeout import PIECE_S, TIMEOUT_S, wait_with_timeout
from asrtool.distributed.transport.copy_stream import SideStream
from asrtool.distributed.transport.event_log import Note, no_note
from asrtool.distributed.transport.exchange import Exchanger
from asrtool.distributed.transport.view import View

END = -1  # of orders, in the place of a neighbour


class HostSwap:
    """Weights on the host, which are those of the view."""

    def __init__(self, view: View, exchanger: Exchanger | None, note: Note = no_note) -> None:
        self.view = view
        self.exchanger = exchanger
        self.note = note

    def changing(self) -> contextlib.AbstractContextManager[object]:
        """Held while an optimizer changes the weights: nobody exchanges with what is half changed."""
        return self.view.lock

    def swap(self) -> int:
        """Publish what this learner changed, and take what exchanges pulled; returns the number of exchanges."""
        with self.view.lock:
            num_pulls = self.view.update()
            self.note("take")
        return num_pulls

    def begin(self, neighbour: int | None) -> bool:
        """Begin an exchange with `neighbour`, if any; False, and none begun, where the last one is still under way."""
        assert self.exchanger
        return neighbour is None or self.exchanger.begin(neighbour)

    def publish(self) -> None:
        """Have in the view all that this learner has changed."""

    def drain(self) -> None:
        """Wait for the exchange under way; ConnectionError where the neighbour does not answer."""
        if self.exchanger:
            self.exchanger.finish()

    def settle(self) -> None:
        """When no exchange is under way at any learner: weights and view become the same."""
        self.view.update()

    def close(self) -> None:
        """Begin nothing more."""


class GpuSwap:
    """Weights on a GPU, and as many values again twice on either side: weights to publish, and pulls to be added."""

    def __init__(self, view: View, weights_P: Tensor, exchanger: Exchanger | None, stream: SideStream) -> None:
        self.view = view
        self.weights_P = weights_P
        self.exchanger = exchanger
        self.stream = stream
        self.aside_P, self.pulls_P = torch.empty_like(weights_P), torch.zeros_like(weights_P)
        self.own_P, self.pulled_P = stream.pinned(len(weights_P)), stream.pinned(len(weights_P)).zero_()
        self.num_pulls = 0  # in `pulls_P`
        self.pending = True  # whether these are still to be added to the weights
        self.swapped = False
        self.ready = threading.Event()  # no trip is under way
        self.ready.set()
        self.copying = threading.Lock()  # held while the pinned buffers are in use
        self.closing = False
        self.error: Exception | None = None
        self.orders: SimpleQueue[int | None] = SimpleQueue()  # a neighbour, or none
        self.thread = threading.Thread(target=self._run, name="swap", daemon=True)
        self.thread.start()

    def changing(self) -> contextlib.AbstractContextManager[object]:
        """The view has weights of its own."""
        return contextlib.nullcontext()

    def swap(self) -> int:
        """As on the host, where no trip is under way; otherwise the weights stay, and nothing is published."""
        if self.error:
            raise self.error
        self.swapped = self.exchanger is not None and self.ready.is_set()
        if not self.swapped:
            return 0
        self._add_pulls()
        self.aside_P.copy_(self.weights_P)
        num_pulls, self.num_pulls = self.num_pulls, 0
        return num_pulls

    def begin(self, neighbour: int | None) -> bool:
        """Begin a trip, with an exchange with `neighbour`, if any; False where the last one is still under way."""
        if not self.swapped:
            return False
        self.swapped = False
        self.ready.clear()
        self.copying.acquire()  # until the thread has published
        self.stream.follow()
        self.orders.put(neighbour)
        return True

    def publish(self) -> None:
        """The computing thread waits for a copy to the host. An exchange under way is not waited for."""
        with self.copying:
            self.stream.follow()
            self.stream.copy(self.own_P, self.weights_P)
            if self.pending:
                self.own_P += self.pulled_P  # as the next swap does to the weights
            self.view.publish(self.own_P)

    def drain(self) -> None:
        """Wait for the trip under way; ConnectionError where the neighbour does not answer."""
        done = wait_with_timeout(self.ready.wait)
        if self.error:
            raise self.error
        if not done:
            raise ConnectionError(f"the exchange under way has not answered for {TIMEOUT_S:g} s")

    def settle(self) -> None:
        """As on the host."""
        self.publish()
        self._add_pulls()
        self.stream.follow()
        self._collect()
        self._add_pulls()

    def close(self) -> None:
        """End the thread."""
        self.closing = True
        self.orders.put(END)
        self.thread.join(TIMEOUT_S)

    def _add_pulls(self) -> None:
        if self.pending:
            self.weights_P += self.pulls_P
        self.pending = False

    def _collect(self) -> None:
        self.num_pulls += self.view.collect(self.pulled_P)
        self.stream.copy(self.pulls_P, self.pulled_P)
        self.pending = True

    def _run(self) -> None:
        while (neighbour := self.orders.get()) != END:
            try:
                self._trip(neighbour)
            except Exception as error:  # the computing thread raises it
                self.error = error
            finally:
                self.ready.set()  # once a trip: a second time could fall into the next one and pass for its end

    def _trip(self, neighbour: int | None) -> None:
        try:
            self.stream.copy(self.own_P, self.aside_P)
            self.view.publish(self.own_P)
        finally:
            self.copying.release()
        if neighbour is not None:
            self._exchange(neighbour)
        with self.copying:
            self._collect()

    def _exchange(self, neighbour: int) -> None:
        assert self.exchanger
        self.exchanger.begin(neighbour)
        while not (self.exchanger.idle.wait(PIECE_S) or self.closing):
            pass
        self.exchanger.check()
