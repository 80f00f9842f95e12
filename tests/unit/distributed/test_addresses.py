"""Which address of its host a learner has."""

from __future__ import annotations

import pytest
from learner_threads import at_once
from torch.distributed import HashStore

from asrtool.distributed.launch import addresses
from asrtool.distributed.launch.addresses import (
    address_on,
    address_towards,
    connect_learners,
    interface_of,
    own_address,
    own_addresses,
    reach_rendezvous,
)
from asrtool.distributed.transport.sockets import url_of
from asrtool.errors import AsrtoolError

ADDRESSES = [("lo", "127.0.0.1"), ("eth0", "10.2.0.5"), ("eth1", "10.1.0.5"), ("eth1", "fd79::5")]


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a host with two networks."""
    monkeypatch.setattr(addresses, "own_addresses", lambda: ADDRESSES)


@pytest.mark.parametrize(
    ("reached", "others", "expected"),
    [
        (("127.0.0.1", False), (), "127.0.0.1"),
        (("127.0.0.1", False), ("", "127.0.0.1"), "127.0.0.1"),
        (("127.0.0.1", False), ("", "10.0.0.2", "10.0.0.3"), "towards 10.0.0.2"),  # Debian's 127.0.1.1
        (("10.3.0.1", False), ("", "10.0.0.2"), "towards 10.0.0.2"),  # the name of an interface that leads nowhere
        (("10.0.0.1", False), (), "10.0.0.1"),
        (("10.0.0.1", True), ("10.3.0.2",), "10.0.0.1"),
    ],
)
def test_the_host_of_the_rendezvous_takes_the_address_towards_another_and_others_that_towards_it(
    reached: tuple[str, bool], others: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "address_towards", lambda address: f"towards {address}")
    assert own_address("", reached, lambda: others) == expected


def test_the_address_towards_this_host_is_its_loopback_address_and_has_its_interface() -> None:
    assert address_towards("127.0.1.1") == "127.0.0.1"
    assert ("lo", "127.0.0.1") in own_addresses()
    assert interface_of("127.0.0.1") == "lo"
    assert address_on("lo") == address_on("127.0.0.0/8") == "127.0.0.1"


@pytest.mark.parametrize(
    ("interface", "expected"),
    [
        ("eth1", "10.1.0.5"),
        ("10.1.0.0/16", "10.1.0.5"),
        ("10.1.2.3/16", "10.1.0.5"),
        ("fd79::/64", "fd79::5"),
    ],
)
def test_a_chosen_interface_goes_before_the_way_to_the_rendezvous(
    interface: str, expected: str, interfaces: None
) -> None:
    assert own_address(interface, ("10.2.0.5", True)) == expected


@pytest.mark.parametrize("interface", ["ib0", "10.3.0.0/16", "eth"])
def test_an_interface_that_there_is_not_is_refused_with_those_that_there_are(interface: str, interfaces: None) -> None:
    with pytest.raises(AsrtoolError) as error:
        own_address(interface, ("10.2.0.5", True))
    assert str(error.value) == (
        f"distributed.interface is {interface!r}; this host has lo (127.0.0.1), eth0 (10.2.0.5), eth1 (10.1.0.5), "
        "eth1 (fd79::5); name an interface that all have, or a subnet that has an address of each"
    )


def test_zeromq_gets_an_address_of_ipv6_in_brackets() -> None:
    assert (url_of("10.1.0.5"), url_of("fd79::5")) == ("tcp://10.1.0.5", "tcp://[fd79::5]")


def test_learners_of_a_store_on_their_host_have_its_loopback_address_and_connect() -> None:
    store = HashStore()
    places = at_once(lambda rank: connect_learners(store, rank, 3, "", ("127.0.0.1", False), 60.0), range(3))
    assert [[place.address for place in found] for found in places] == [["127.0.0.1"] * 3] * 3


def test_learners_of_which_one_falls_silent_say_which() -> None:
    with pytest.raises(
        AsrtoolError, match=r"all learners met at the rendezvous, then rank 1 of 2 was silent for 0\.1 s"
    ):
        connect_learners(HashStore(), 0, 2, "", ("127.0.0.1", False), 0.1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("127.0.0.1", "learner 3 on {} cannot reach the rendezvous at 127.0.0.1:1 (127.0.0.1) from 127.0.0.1 (lo): "),
        (
            "no-such-host.invalid",
            "learner 3 on {} cannot reach the rendezvous at no-such-host.invalid:1 (MASTER_ADDR), of",
        ),
    ],
)
def test_a_rendezvous_that_is_not_reached_is_named_with_the_way_there(
    name: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in {"RANK": "3", "MASTER_ADDR": name, "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(AsrtoolError) as error:
        reach_rendezvous(0.0)
    assert str(error.value).startswith(expected.format(addresses.socket.gethostname()))
    assert "--local-addr" in str(error.value)


def test_the_interfaces_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(addresses, "own_addresses", lambda: ADDRESSES)
    environment = addresses.os.environ
    addresses.use_for_groups("10.1.0.5", several_hosts=False)
    assert (environment["GLOO_SOCKET_IFNAME"], environment.get("NCCL_SOCKET_IFNAME")) == ("eth7", None)
    addresses.use_for_groups("10.1.0.5", several_hosts=True)
    assert (environment["GLOO_SOCKET_IFNAME"], environment.get("NCCL_SOCKET_IFNAME")) == ("eth7", "=eth1")
