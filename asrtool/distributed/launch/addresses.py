"""Addresses of learners: all sockets of a learner listen at one address.

It is the address from which the learner reaches the rendezvous. A host that finds the rendezvous at
itself takes the address from which it reaches another host: its own name may stand for a loopback
address, as on Debian, or for an interface without a network. `distributed.interface` overrides both.

Then each learner connects to one of each other host. If one cannot be reached none trains, and all end
by the same error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import ipaddress
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.errors import AsrtoolError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

GET_ADDRESS = 0x8915  # SIOCGIFADDR of linux/sockios.h
REQUEST = struct.Struct("16s4x4s232x")  # struct ifreq: a name, then a sockaddr_in whose address is at byte 20
IPV6_ADDRESSES = Path("/proc/net/if_inet6")  # lines of an address, its interface's number, three more, its name
LOOPBACK = "127.0.0.1"
POLL_S = 0.2
BACKLOG = 4096  # connections of learners, which are never accepted


@dataclass(frozen=True)
class Endpoint:
    """Host and address of a learner."""

    host: str
    address: str  # empty if it has none, for the reason `fault`
    port: int = 0  # to which the others connect
    fault: str = ""


def reach_rendezvous(timeout_s: float) -> tuple[str, bool]:
    """Connect to MASTER_ADDR.

    Returns the address of this host on that way, and whether it leads to another host. AsrtoolError if
    no connection succeeds within `timeout_s`.
    """
    name, port, until = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), time.monotonic() + timeout_s
    while True:
        try:
            with socket.create_connection((name, port), max(POLL_S, until - time.monotonic())) as connected:
                own, other = connected.getsockname()[0], connected.getpeername()[0]
                return (LOOPBACK, False) if _is_loopback(own) else (own, own != other)
        except OSError as error:
            if time.monotonic() > until:
                raise _rendezvous_unreached(name, port, error) from None
            time.sleep(POLL_S)


def _rendezvous_unreached(name: str, port: int, error: OSError) -> AsrtoolError:
    rank, host = os.environ["RANK"], socket.gethostname()
    way = "(MASTER_ADDR), which has no known address"
    with contextlib.suppress(OSError):
        address = str(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0][4][0])
        own = address_towards(address)
        way = f"({address}) from {own} ({interface_of(own)})" if own else f"({address}), to which no network leads"
    return AsrtoolError(
        f"learner {rank} on {host} cannot reach the rendezvous at {name}:{port} {way}: {error}",
        "start the others as well, torchrun with --local-addr ADDRESS_OF_THAT_HOST, one that the others reach, and let "
        "hosts pass all ports",
    )


def address_towards(address: str) -> str:
    """Return the address of this host for packets to `address`; empty if none."""
    with socket.socket(_family(address), socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect((address, 9))  # sends nothing
        return str(probe.getsockname()[0])
    return ""


def own_address(interface: str, reached: tuple[str, bool], others: Callable[[], Sequence[str]] = tuple) -> str:
    """Choose the address of this learner, which has `reached` the rendezvous.

    `others` returns the known addresses of others. AsrtoolError if this host has none on
    `interface`.
    """
    address, leads_away = reached
    if interface:
        return address_on(interface)
    if leads_away:
        return address
    elsewhere = [other for other in others() if other and other != address and not _is_loopback(other)]
    return (elsewhere and address_towards(elsewhere[0])) or address


def connect_learners(
    store: Store, rank: int, size: int, interface: str, reached: tuple[str, bool], timeout_s: float
) -> list[Endpoint]:
    """Return the endpoints of all learners of several hosts, by rank.

    All call this, and it returns once they reach each other. AsrtoolError, the same for all, if one
    has no address or does not reach another.
    """

    def publish(name: str, text: str) -> None:
        store.set(f"{name}/{rank}", text)

    def read_all(name: str) -> list[str]:
        keys = [f"{name}/{other}" for other in range(size)]
        try:
            store.wait(keys, timedelta(seconds=timeout_s))
        except RuntimeError:
            missing = ", ".join(str(other) for other, key in enumerate(keys) if not store.check([key]))
            raise AsrtoolError(
                f"all learners met at the rendezvous, then rank {missing} of {size} was silent for {timeout_s:g} s",
                "see the logs of these ranks and their hosts, then run the same command again",
            ) from None
        return [store.get(key).decode() for key in keys]

    publish("towards", reached[0] if reached[1] else "")
    try:
        own = Endpoint(socket.gethostname(), own_address(interface, reached, lambda: read_all("towards")))
    except AsrtoolError as error:
        if not interface:
            raise
        own = Endpoint(socket.gethostname(), "", fault=error.what)
    with contextlib.ExitStack() as stack:
        if own.address:
            listening = socket.create_server((own.address, 0), family=_family(own.address), backlog=BACKLOG)
            server = stack.enter_context(listening)
            own = dataclasses.replace(own, port=server.getsockname()[1])
        publish("place", json.dumps(vars(own)))
        endpoints = [Endpoint(**json.loads(text)) for text in read_all("place")]
        for other, endpoint in enumerate(endpoints):
            if not endpoint.address:
                raise AsrtoolError(
                    f"learner {other} on {endpoint.host}: {endpoint.fault}",
                    "name an interface that all have, or a subnet that has an address of each",
                )
        publish("reached", json.dumps(try_hosts(endpoints, own, timeout_s / 2)))
        for other, text in enumerate(read_all("reached")):
            if fault := json.loads(text):
                raise unreachable(other, endpoints[other], *fault)
    return endpoints


def known_addresses(store: Store, size: int) -> list[str]:
    """Return the addresses of `connect_learners`; empty if all are on one host."""
    keys = [f"place/{rank}" for rank in range(size)]
    return [json.loads(store.get(key))["address"] for key in keys] if store.check(keys) else []


def try_hosts(endpoints: Sequence[Endpoint], own: Endpoint, timeout_s: float) -> tuple[str, str] | None:
    """Connect to each other host; return the first not reached, and the reason."""
    for other in {(endpoint.host, endpoint.address): endpoint for endpoint in endpoints}.values():
        if (other.host, other.address) == (own.host, own.address):
            continue
        try:
            source = (own.address, 0)
            socket.create_connection((other.address, other.port), timeout_s, source_address=source).close()
        except OSError as error:
            return f"{other.address} of {other.host}", f"{error} (by {interface_of(own.address)})"
    return None


def unreachable(rank: int, own: Endpoint, other: str, why: str) -> AsrtoolError:
    """Make the error of learner `rank`, which does not reach another at `other`."""
    return AsrtoolError(
        f"learner {rank} on {own.host} cannot reach a learner at {other} from {own.address}: {why}",
        "set distributed.interface to the network, by name or subnet, on which all hosts reach each other, and let "
        "them pass all ports",
    )


def use_for_groups(address: str, several_hosts: bool) -> None:
    """Set the interface of gloo and NCCL by `address`, unless the user chose one."""
    if name := interface_of(address):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        if several_hosts:  # on one host NCCL needs no network
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")


def address_on(interface: str) -> str:
    """Return the address of this host on `interface`, a name or a subnet.

    A subnet is written like 10.1.0.0/16. AsrtoolError, with the interfaces of this host, if it has
    no address there.
    """
    addresses = own_addresses()
    if "/" in interface:
        subnet = ipaddress.ip_network(interface, strict=False)
        inside = [address for _, address in addresses if ipaddress.ip_address(address) in subnet]
    else:
        inside = [address for name, address in addresses if name == interface]
    if inside:
        return inside[0]
    known = ", ".join(f"{name} ({address})" for name, address in addresses)
    raise AsrtoolError(
        f"distributed.interface is {interface!r}; this host has {known}",
        "name an interface that all have, or a subnet that has an address of each",
    )


def interface_of(address: str) -> str:
    """Return the name of the interface that has `address`; empty if unknown."""
    return next((name for name, own in own_addresses() if own == address), "")


def own_addresses() -> list[tuple[str, str]]:
    """List the interfaces of this host with their addresses; on Linux alone."""
    addresses = []
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no IPv4 address, or is gone by now
                answer = fcntl.ioctl(asking.fileno(), GET_ADDRESS, REQUEST.pack(name.encode(), b""))
                addresses.append((name, socket.inet_ntoa(REQUEST.unpack(answer)[1])))
    with contextlib.suppress(OSError):
        for line in IPV6_ADDRESSES.read_text(encoding="ascii").splitlines():
            digits, *_, name = line.split()
            address = ipaddress.IPv6Address(int(digits, 16))
            if not address.is_link_local:
                addresses.append((name, str(address)))
    return addresses


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
