"""Seconds of a step: by the clock of the host, or by events on a GPU's stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class HostClock:
    """Clock for a device whose computations return when they are done."""

    def mark(self) -> float:
        """Return the time now."""
        return time.perf_counter()

    def seconds(self, *spans: tuple[float, float]) -> list[float]:
        """Return the lengths of spans between marks, always the same number of spans."""
        return [end - begin for begin, end in spans]


def cuda_event() -> Any:
    """Make an event to be recorded on a stream."""
    return torch.cuda.Event(enable_timing=True)


class GpuClock:
    """Clock for a GPU, where computations return before they are done.

    It does not wait for them: seconds are of the step before. By then a step has waited for the GPU
    once, for the norm of its gradients, and so for all marks of the step before.
    """

    def __init__(self, make_event: Callable[[], Any] = cuda_event) -> None:
        self.make_event = make_event
        self.before: Sequence[tuple[Any, Any]] = ()

    def mark(self) -> Any:
        """Record an event on the computing stream."""
        event = self.make_event()
        event.record()
        return event

    def seconds(self, *spans: tuple[Any, Any]) -> list[float]:
        """Return the lengths of the spans given in the step before; 0 in the first."""
        before, self.before = self.before, spans
        return [begin.elapsed_time(end) / 1000 for begin, end in before] or [0.0] * len(spans)


def clock_of(values: Tensor) -> HostClock | GpuClock:
    """Make the clock of the device of `values`."""
    return GpuClock() if values.is_cuda else HostClock()
