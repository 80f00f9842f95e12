"""Clock and background work of a device: the host or a GPU.

On the host a thread works in the background. On a GPU a side stream does, and copies to and from
pinned memory of the host, for which the GPU needs no core.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from asrtool.distributed.transport.sockets import ANSWER_TIMEOUT_S


class HostClock:
    """Clock for a device whose computations return when they are done."""

    def mark(self) -> float:
        """Return the time now."""
        return time.perf_counter()

    def seconds(self, *spans: tuple[float, float]) -> list[float]:
        """Return the lengths of spans between marks, always the same number of spans."""
        return [end - begin for begin, end in spans]


class GpuClock:
    """Clock for a GPU, where computations return before they are done.

    It does not wait for them: seconds are of the step before. By then a step has waited for the GPU
    once, for the norm of its gradients, and so for all marks of the step before.
    """

    def __init__(self) -> None:
        self.before: Sequence[tuple[Any, Any]] = ()

    def mark(self) -> Any:
        """Record an event on the computing stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, *spans: tuple[Any, Any]) -> list[float]:
        """Return the lengths of the spans given in the step before; 0 in the first."""
        before, self.before = self.before, spans
        return [begin.elapsed_time(end) / 1000 for begin, end in before] or [0.0] * len(spans)


def clock_of(values: Tensor) -> HostClock | GpuClock:
    """Make the clock of the device of `values`."""
    return GpuClock() if values.is_cuda else HostClock()


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
        """Allocate pinned host memory of `num_values`."""
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
    """Thread that does `work` whenever it is begun while `idle`.

    To start a collective in the computing thread took 0.3 ms a step.
    """

    def __init__(self, work: Callable[..., None], name: str) -> None:
        self.work = work
        self.idle = threading.Event()
        self.idle.set()
        self.error: Exception | None = None
        self.orders: SimpleQueue[Sequence[Any] | None] = SimpleQueue()  # arguments of `work`; None ends the thread
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def begin(self, *arguments: Any) -> None:
        """Begin the work."""
        if not self.thread.ident:
            self.thread.start()
        self.idle.clear()
        self.orders.put(arguments)

    def wait(self) -> None:
        """Wait until the work is done; raise its error, if any."""
        self.idle.wait()
        self.check()

    def check(self) -> None:
        """Raise the error of the work, if there was one."""
        if self.error:
            raise self.error

    def close(self) -> None:
        """End the thread, after the work under way."""
        self.orders.put(None)
        if self.thread.is_alive():
            self.thread.join(ANSWER_TIMEOUT_S)

    def _serve(self) -> None:
        while (arguments := self.orders.get()) is not None:
            try:
                self.work(*arguments)
            except Exception as error:  # whatever it is: the computing thread would wait for ever
                self.error = error
            self.idle.set()


class BackgroundStream:
    """Side stream for `work`, operations of a GPU: no thread waits."""

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
        """Do nothing: a stream needs no end."""


def in_background(work: Callable[[], None], values: Tensor, name: str) -> BackgroundThread | BackgroundStream:
    """Make the background worker for `work` on `values`; `name` is of a thread."""
    stream = side_stream(values)
    return BackgroundStream(work, stream) if stream else BackgroundThread(work, name)
