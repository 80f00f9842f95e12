"""The rendezvous and the addresses of learners."""

from __future__ import annotations

import pytest
import torch
from torch.distributed import HashStore

from asrtool.distributed import world
from asrtool.distributed.world import World, address_towards, own_address


class Gathering(World):
    """A learner of several, whose first guesses of their addresses are `guesses`."""

    guesses: tuple[str, ...] = ()

    def gather(self, value: object) -> list[object]:
        return [value, *self.guesses]


@pytest.mark.parametrize(
    ("first", "guesses", "expected"),
    [
        ("127.0.0.1", (), "127.0.0.1"),
        ("127.0.0.1", ("127.0.0.1",), "127.0.0.1"),
        ("127.0.1.1", ("127.0.1.1", "10.0.0.2", "10.0.0.3"), "towards 10.0.0.2"),
        ("10.0.0.1", ("127.0.1.1", "10.0.0.2"), "10.0.0.1"),
    ],
)
def test_a_machine_that_knows_itself_by_a_loopback_address_takes_that_towards_another(
    first: str, guesses: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "node0")
    monkeypatch.setattr(world, "address_towards", lambda host: first if host == "node0" else f"towards {host}")
    learner = Gathering()
    learner.guesses = guesses
    assert own_address(learner) == expected


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


def test_the_address_towards_this_machine_is_its_loopback_address() -> None:
    assert address_towards("127.0.0.1") == "127.0.0.1"
    assert address_towards("no such host.invalid") == "127.0.0.1"
