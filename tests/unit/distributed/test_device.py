from __future__ import annotations

import pytest
import torch

from asrtool.distributed.transport.device import GpuClock, HostClock, clock_of


class Event:
    """Recorded at 1, 2, 4, 8, ... ms; asked for spans only after the GPU has been waited for."""

    num = 0
    waited = 0  # events that were recorded before

    def record(self) -> None:
        self.number = Event.num
        Event.num += 1

    def elapsed_time(self, end: Event) -> float:
        assert max(self.number, end.number) < Event.waited, "the GPU has not come to it"
        return float(2**end.number - 2**self.number)


def test_on_a_gpu_spans_are_those_of_the_step_before_which_nothing_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: Event())
    clock, found = GpuClock(), []
    Event.num = Event.waited = 0
    for _ in range(3):
        begin = clock.mark()
        Event.waited = Event.num - 1  # the norm of the gradients waits for all that was given before the step
        waited, end = clock.mark(), clock.mark()
        found.append(clock.seconds((begin, waited), (waited, end)))
    assert found == [[0.0, 0.0], [0.001, 0.002], [0.008, 0.016]]


def test_on_the_host_spans_are_those_of_now() -> None:
    clock = clock_of(torch.ones(1))
    assert isinstance(clock, HostClock)
    assert clock.mark() <= clock.mark()
    assert clock.seconds((1.0, 3.5), (3.5, 4.0)) == [2.5, 0.5]
