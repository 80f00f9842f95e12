"""Work beside the stream or thread that computes: on the host in a thread, on a GPU on a stream of its own.

What a strategy exchanges lies where its model computes. On the host a thread takes means beside the computing one. On a
GPU a side stream does, and copies to and from pinned memory of the host, for which the GPU needs no core.
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
        """What it is given from now on begins after all that the computing stream was given before."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def run(self, work: Callable[[], None]) -> None:
        """Give it the operations of `work`; the host does not wait for them."""
        with torch.cuda.stream(self.stream):
            work()

    def join(self) -> None:
        """What the computing stream is given from now on begins after all that this one was given. No thread waits."""
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def copy(self, place: Tensor, values: Tensor) -> None:
        """Copy between the GPU and pinned memory. Returns when it is done; the computing stream does not wait."""
        with torch.cuda.stream(self.stream):
            place.copy_(values, non_blocking=True)
        self.stream.synchronize()

    def pinned(self, num_values: int) -> Tensor:
        """Memory of the host for so many float32 values, that the GPU can copy from and to by itself."""
        return torch.empty(num_values, pin_memory=True)


def side_stream(values: Tensor) -> SideStream | None:
    """A stream beside the one that computes on `values`; None where they lie on the host."""
    return SideStream(values.device) if values.is_cuda else None


def begin_copy(value: Tensor) -> Tensor:
    """One value on the host: what it holds counts once the computing stream has been waited for."""
    if not value.is_cuda:
        return value
    return torch.empty_like(value, device="cpu", pin_memory=True).copy_(value, non_blocking=True)


class BackgroundThread:
    """Does `work` in a thread, whenever it is begun.

    Starting a collective alone took the computing thread 0.3 ms a step.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self.work = work
        self.asked: SimpleQueue[bool] = SimpleQueue()  # True for work, False for the end
        self.done: SimpleQueue[Exception | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def begin(self) -> None:
        """Begin the work."""
        if not self.thread.ident:
            self.thread.start()
        self.asked.put(True)

    def wait(self) -> None:
        """Until what was begun is done; raises what it raises."""
        if error := self.done.get():
            raise error

    def close(self) -> None:
        """End the thread, after what is under way."""
        self.asked.put(False)
        if self.thread.is_alive():
            self.thread.join(ANSWER_TIMEOUT_S)

    def _serve(self) -> None:
        while self.asked.get():
            try:
                self.work()
            except Exception as error:  # whatever it is: the computing thread would wait for ever
                self.done.put(error)
            else:
                self.done.put(None)


class BackgroundStream:
    """Does `work`, operations of a GPU, on a side stream: the computing stream waits there, and no thread."""

    def __init__(self, work: Callable[[], None], stream: SideStream) -> None:
        self.work = work
        self.stream = stream

    def begin(self) -> None:
        """Begin the work, after what was computed before."""
        self.stream.follow()
        self.stream.run(self.work)

    def wait(self) -> None:
        """What is computed from now on is computed after the work."""
        self.stream.join()

    def close(self) -> None:
        """Nothing is left."""


def in_background(work: Callable[[], None], values: Tensor, name: str) -> BackgroundThread | BackgroundStream:
    """What does `work` on `values` beside the computation; a thread of the host gets the `name`."""
    stream = side_stream(values)
    return BackgroundStream(work, stream) if stream else BackgroundThread(work, name)
