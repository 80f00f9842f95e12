"""The rendezvous and the addresses of learners."""

from __future__ import annotations

import pytest
import torch
from torch.distributed import HashStore

from asrtool.distributed import interface as interface_module
from asrtool.distributed import world
from asrtool.distributed.interface import address_on, own_addresses
from asrtool.distributed.world import World, address_towards, own_address
from asrtool.errors import AsrtoolError


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


def test_the_loopback_interface_is_found_by_its_name_and_by_its_subnet() -> None:
    assert own_addresses()["lo"] == "127.0.0.1"
    assert address_on("lo") == address_on("127.0.0.0/8") == "127.0.0.1"


@pytest.mark.parametrize("interface", ["ib0", "10.2.0.0/16", "eth"])
def test_an_interface_that_there_is_not_is_refused_with_those_that_there_are(
    interface: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface_module, "own_addresses", lambda: {"lo": "127.0.0.1", "eth0": "10.1.0.5"})
    with pytest.raises(AsrtoolError) as error:
        own_address(World(interface=interface))
    assert str(error.value) == (
        f"distributed.interface is {interface!r}; a machine of the learners has lo (127.0.0.1), eth0 (10.1.0.5); "
        "name an interface that all have, or a subnet that has an address of each"
    )


@pytest.mark.parametrize("interface", ["eth1", "10.1.0.0/16", "10.1.2.3/16"])
def test_a_chosen_interface_goes_before_that_towards_the_first_learner(
    interface: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = {"lo": "127.0.0.1", "eth0": "10.2.0.5", "eth1": "10.1.0.5"}
    monkeypatch.setattr(interface_module, "own_addresses", lambda: addresses)
    monkeypatch.setattr(world, "address_towards", lambda host: "10.2.0.5")
    assert own_address(World()) == "10.2.0.5"
    assert own_address(World(interface=interface)) == "10.1.0.5"


def test_the_learners_of_a_group_use_the_interface_of_all() -> None:
    assert World(interface="eth1").split([[0]]).interface == "eth1"
