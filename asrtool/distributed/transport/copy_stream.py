"""Work in the background of a computation: a host thread, or a stream of a GPU.

On the host a thread computes means. On a GPU a side stream does, and copies to and from pinned
memory of the host, for which the GPU needs no core.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import torch
from torch import Tensor

from asrtool.distributed.transport.sockets import ANSWER_TIMEOUT_S


class SideStream:
    """A stream of a GPU beside the one that computes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)

    def follow(self) -> None:
        """Make later work of this stream wait for the computing stream."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def run(self, work: Callable[[], None]) -> None:
        """Queue the operations of `work`; the host does not wait for them."""
        with torch.cuda.stream(self.stream):
            work()

    def join(self) -> None:
        """Make later work of the computing stream wait for this one; no thread waits."""
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def copy(self, place: Tensor, values: Tensor) -> None:
        """Copy to or from pinned memory, and wait; the computing stream does not."""
        with torch.cuda.stream(self.stream):
            place.copy_(values, non_blocking=True)
        self.stream.synchronize()

    def pinned(self, num_values: int) -> Tensor:
        """Allocate host memory that the GPU can copy from and to by itself."""
        return torch.empty(num_values, pin_memory=True)


def side_stream(values: Tensor) -> SideStream | None:
    """Make a stream beside the one that computes on `values`; None on the host."""
    return SideStream(values.device) if values.is_cuda else None


def begin_copy(value: Tensor) -> Tensor:
    """Begin to copy a value to the host; it is valid after the next wait."""
    if not value.is_cuda:
        return value
    return torch.empty_like(value, device="cpu", pin_memory=True).copy_(value, non_blocking=True)


class BackgroundThread:
    """Does `work` in a thread, whenever it is begun.

    To start a collective in the computing thread took 0.3 ms a step.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self.work = work
        self.orders: SimpleQueue[bool] = SimpleQueue()  # True for work, False for the end
        self.done: SimpleQueue[Exception | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def begin(self) -> None:
        """Begin the work."""
        if not self.thread.ident:
            self.thread.start()
        self.orders.put(True)

    def wait(self) -> None:
        """Wait until the work is done; raise its error, if any."""
        if error := self.done.get():
            raise error

    def close(self) -> None:
        """End the thread, after the work under way."""
        self.orders.put(False)
        if self.thread.is_alive():
            self.thread.join(ANSWER_TIMEOUT_S)

    def _serve(self) -> None:
        while self.orders.get():
            try:
                self.work()
            except Exception as error:  # whatever it is: the computing thread would wait for ever
                self.done.put(error)
            else:
                self.done.put(None)


class BackgroundStream:
    """Does `work`, operations of a GPU, on a side stream: no thread waits."""

    def __init__(self, work: Callable[[], None], stream: SideStream) -> None:
        self.work = work
        self.stream = stream

    def begin(self) -> None:
        """Begin the work, after all computations so far."""
        self.stream.follow()
        self.stream.run(self.work)

    def wait(self) -> None:
        """Make later computations wait for the work."""
        self.stream.join()

    def close(self) -> None:
        """End nothing: a stream needs no end."""


def in_background(work: Callable[[], None], values: Tensor, name: str) -> BackgroundThread | BackgroundStream:
    """Make the background worker for `work` on `values`; `name` is of a thread."""
    stream = side_stream(values)
    return BackgroundStream(work, stream) if stream else BackgroundThread(work, name)
