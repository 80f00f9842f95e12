"""GPUs of learners: which each has, how these connect, and how long they compute; groups of learners."""

from __future__ import annotations

import pytest
import torch
from torch.distributed import HashStore

from asrtool.distributed import world
from asrtool.distributed.transport.device import GpuClock, clock_of
from asrtool.distributed.world import World, choose_gpu


def test_each_learner_of_a_machine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for rank in ("0", "1", "2"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        choose_gpu()
    assert chosen == [0, 1, 0]


@pytest.mark.parametrize(
    ("num_gpus", "expected"), [((2, 2, 2), "cpu:gloo,cuda:nccl"), ((2, 1, 2), "gloo"), ((2, 2, 0), "gloo")]
)
def test_nccl_connects_learners_only_where_each_has_a_gpu_of_its_own(
    num_gpus: tuple[int, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two learners on a machine; NCCL would refuse two on a GPU, and learners of two backends would wait for ever."""
    store, backends = HashStore(), []
    monkeypatch.setattr(world.collectives, "init_process_group", lambda backend, **_: backends.append(backend))
    monkeypatch.setattr(world, "choose_gpu", lambda: None)
    for rank in (2, 1, 0):
        for other in range(rank):  # what others have written by then
            own = num_gpus[other] >= 2
            store.set(f"collectives/gpu/{other}", str(own))
        monkeypatch.setattr(torch.cuda, "device_count", lambda rank=rank: num_gpus[rank])
        world.init_collectives(World(rank, 3, 2, store))
    assert backends == [expected] * 3


def test_the_learners_of_a_group_have_the_address_of_all() -> None:
    assert World(address="10.1.0.5").split([[0]]).address == "10.1.0.5"


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
    assert clock.mark() <= clock.mark()
    assert clock.seconds((1.0, 3.5), (3.5, 4.0)) == [2.5, 0.5]
