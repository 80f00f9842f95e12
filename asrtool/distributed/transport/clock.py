"""Seconds of a step: by the clock of the host, or by events on the computing stream of a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class HostClock:
    """Where computing returns when it is done."""

    def mark(self) -> float:
        """Now."""
        return time.perf_counter()

    def seconds(self, *spans: tuple[float, float]) -> list[float]:
        """Of spans between two marks, the same number at every step."""
        return [end - begin for begin, end in spans]


def cuda_event() -> Any:
    """To be recorded on a stream."""
    return torch.cuda.Event(enable_timing=True)


class GpuClock:
    """Where computing returns before it is done. It is not waited for: seconds are those of the step before.

    By then a step has waited for the GPU once, for the norm of its gradients, and so for all marks of the step before.
    """

    def __init__(self, make_event: Callable[[], Any] = cuda_event) -> None:
        self.make_event = make_event
        self.before: Sequence[tuple[Any, Any]] = ()

    def mark(self) -> Any:
        """Now, as the computing stream comes to it."""
        event = self.make_event()
        event.record()
        return event

    def seconds(self, *spans: tuple[Any, Any]) -> list[float]:
        """Of the spans given in the step before; 0 in the first."""
        before, self.before = self.before, spans
        return [begin.elapsed_time(end) / 1000 for begin, end in before] or [0.0] * len(spans)


def clock_of(values: Tensor) -> HostClock | GpuClock:
    """That of the device that `values` are on."""
    return GpuClock() if values.is_cuda else HostClock()
