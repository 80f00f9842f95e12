"""Bring a learner's weights and its gossip view together, on the host or on a GPU.

On the host both are the same tensor. On a GPU each exchange is a round trip of a thread, by a side
stream and two buffers of pinned memory:

1. `apply_pulls`, at the end of a step: the computing stream adds the pulls of the last round trip
   to the weights, and copies the weights aside within the GPU.
2. `begin`: the thread copies these to the host, publishes them in the view, and exchanges.
3. The thread then copies the pulls of all exchanges since to the GPU.

The computing stream waits for none of this. A step that ends within a round trip applies nothing,
and its exchange counts as skipped.
"""

from __future__ import annotations

import contextlib
import threading

import torch
from torch import Tensor

from asrtool.distributed.transport.device import BackgroundThread, SideStream
from asrtool.distributed.transport.event_log import Note, no_note
from asrtool.distributed.transport.exchange import Exchanger
from asrtool.distributed.transport.sockets import ANSWER_TIMEOUT_S, WAIT_S, wait_for_answer
from asrtool.distributed.transport.view import View


class HostStaging:
    """Weights on the host, which are the tensor of the view."""

    def __init__(self, view: View, exchanger: Exchanger | None, note: Note = no_note) -> None:
        self.view = view
        self.exchanger = exchanger
        self.note = note

    def changing(self) -> contextlib.AbstractContextManager[object]:
        """Return the lock to hold while an optimizer changes the weights."""
        return self.view.lock

    def apply_pulls(self) -> int:
        """Add the pulls of exchanges to the weights, and return the number of exchanges."""
        with self.view.lock:
            num_pulls = self.view.update()
            self.note("take")
        return num_pulls

    def begin(self, partner: int | None) -> bool:
        """Begin an exchange with `partner`, if any; False if one is under way."""
        assert self.exchanger
        return partner is None or self.exchanger.begin(partner)

    def publish(self) -> None:
        """Bring the view up to date with the weights: nothing to do."""

    def wait(self) -> None:
        """Wait for the exchange under way; ConnectionError without an answer."""
        if self.exchanger:
            self.exchanger.wait()

    def settle(self) -> None:
        """Make weights and view the same, once no learner has an exchange under way."""
        self.view.update()

    def close(self) -> None:
        """Begin nothing more."""


class GpuStaging:
    """Weights on a GPU, and buffers for weights and pulls on the GPU and the host."""

    def __init__(self, view: View, weights_P: Tensor, exchanger: Exchanger | None, stream: SideStream) -> None:
        self.view = view
        self.weights_P = weights_P
        self.exchanger = exchanger
        self.stream = stream
        self.aside_P, self.pulls_P = torch.empty_like(weights_P), torch.zeros_like(weights_P)
        self.host_P, self.host_pulls_P = stream.pinned(len(weights_P)), stream.pinned(len(weights_P)).zero_()
        self.num_pulls = 0  # in `pulls_P`
        self.pending = True  # these are still to be added to the weights
        self.has_weights_aside = False
        self.trips = BackgroundThread(self._round_trip, "staging")
        self.copying = threading.Lock()  # held while the pinned buffers are in use
        self.closing = False

    def changing(self) -> contextlib.AbstractContextManager[object]:
        """Return a context without a lock: the view has a copy of the weights."""
        return contextlib.nullcontext()

    def apply_pulls(self) -> int:
        """Do the same as on the host, but nothing while a round trip is under way."""
        self.trips.check()
        self.has_weights_aside = self.exchanger is not None and self.trips.idle.is_set()
        if not self.has_weights_aside:
            return 0
        self._add_pulls()
        self.aside_P.copy_(self.weights_P)
        num_pulls, self.num_pulls = self.num_pulls, 0
        return num_pulls

    def begin(self, partner: int | None) -> bool:
        """Begin a round trip, also without a partner; False if one is under way."""
        if not self.has_weights_aside:
            return False
        self.has_weights_aside = False
        self.copying.acquire()  # until the thread has published
        self.stream.follow()
        self.trips.begin(partner)
        return True

    def publish(self) -> None:
        """Copy the weights to the view. No exchange is waited for."""
        with self.copying:
            self.stream.follow()
            self.stream.copy(self.host_P, self.weights_P)
            if self.pending:
                self.host_P += self.host_pulls_P  # `apply_pulls` will do so to the weights
            self.view.publish(self.host_P)

    def wait(self) -> None:
        """Wait for the round trip under way; ConnectionError without an answer."""
        done = wait_for_answer(self.trips.idle.wait)
        self.trips.check()
        if not done:
            raise ConnectionError(f"the exchange under way has not answered for {ANSWER_TIMEOUT_S:g} s")

    def settle(self) -> None:
        """Make weights and view the same, once no learner has an exchange under way."""
        self.publish()
        self._add_pulls()
        self.stream.follow()
        self._fetch_pulls()
        self._add_pulls()

    def close(self) -> None:
        """End the thread."""
        self.closing = True
        self.trips.close()

    def _add_pulls(self) -> None:
        if self.pending:
            self.weights_P += self.pulls_P
        self.pending = False

    def _fetch_pulls(self) -> None:
        self.num_pulls += self.view.collect(self.host_pulls_P)
        self.stream.copy(self.pulls_P, self.host_pulls_P)
        self.pending = True

    def _round_trip(self, partner: int | None) -> None:
        try:
            self.stream.copy(self.host_P, self.aside_P)
            self.view.publish(self.host_P)
        finally:
            self.copying.release()
        if partner is not None:
            assert self.exchanger
            self.exchanger.begin(partner)
            while not (self.exchanger.idle.wait(WAIT_S) or self.closing):
                pass
            self.exchanger.check()
        with self.copying:
            self._fetch_pulls()
