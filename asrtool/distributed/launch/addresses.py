"""Where learners reach each other: one address for each, which all sockets of theirs use.

It is the address from which a learner reaches the rendezvous. A host that finds the rendezvous at itself takes the one
from which it reaches another host: its own name may stand for a loopback address, as Debian has it, or for an interface
that leads nowhere. `distributed.interface` goes before both. Then each learner connects to one of each other host, so
that none trains while another cannot be reached: all end by the same line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
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
from typing import TYPE_CHECKING, Any

import zmq

from asrtool.errors import AsrtoolError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

GET_ADDRESS = 0x8915  # SIOCGIFADDR of linux/sockios.h
REQUEST = struct.Struct("16s4x4s232x")  # struct ifreq: a name, then a sockaddr_in whose address is at byte 20
IPV6_ADDRESSES = Path("/proc/net/if_inet6")  # lines of an address, its interface's number, three more, its name
LOOPBACK = "127.0.0.1"
POLL_S = 0.2
BACKLOG = 4096  # connections of learners that nobody accepts


@dataclass(frozen=True)
class Place:
    """Where a learner is."""

    host: str
    address: str  # empty if it has none, `fault` says why
    port: int = 0  # that the others try
    fault: str = ""


def reach_rendezvous(timeout_s: float) -> tuple[str, bool]:
    """Connect to MASTER_ADDR; the address of this host on that way, and whether it leads to another host.

    AsrtoolError if that has not succeeded after `timeout_s`.
    """
    name, port, until = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), time.monotonic() + timeout_s
    while True:
        try:
            with socket.create_connection((name, port), max(POLL_S, until - time.monotonic())) as connected:
                own, other = connected.getsockname()[0], connected.getpeername()[0]
                return (LOOPBACK, False) if _is_loopback(own) else (own, own != other)
        except OSError as error:
            if time.monotonic() > until:
                raise _not_reached(name, port, error) from None
            time.sleep(POLL_S)


def _not_reached(name: str, port: int, error: OSError) -> AsrtoolError:
    rank, host = os.environ["RANK"], socket.gethostname()
    way = "(MASTER_ADDR), of which no address is known"
    with contextlib.suppress(OSError):
        address = str(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0][4][0])
        own = address_towards(address)
        way = f"({address}) from {own} ({interface_of(own)})" if own else f"({address}), to which no network leads"
    return AsrtoolError(
        f"learner {rank} on {host} cannot reach the rendezvous at {name}:{port} {way}: {error}",
        "start torchrun on each host with --local-addr ADDRESS_OF_THAT_HOST, one that the others reach, and let them "
        "pass all ports",
    )


def address_towards(address: str) -> str:
    """The address of this host from which packets for `address` leave; empty if no network leads there."""
    with socket.socket(_family(address), socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect((address, 9))  # sends nothing
        return str(probe.getsockname()[0])
    return ""


def own_address(interface: str, reached: tuple[str, bool], others: Callable[[], Sequence[str]] = tuple) -> str:
    """The address of this learner, which has `reached` the rendezvous; `others` gives those that are known of others.

    AsrtoolError if it is to be that on `interface`, and this host has none there.
    """
    address, leads_away = reached
    if interface:
        return address_on(interface)
    if leads_away:
        return address
    elsewhere = [other for other in others() if other and other != address and not _is_loopback(other)]
    return (elsewhere and address_towards(elsewhere[0])) or address


def find_places(
    store: Store, rank: int, size: int, interface: str, reached: tuple[str, bool], timeout_s: float
) -> list[Place]:
    """The places of all learners of several hosts, by rank, once they reach each other; all call this.

    AsrtoolError, with the same line for all, if one has no address or does not reach another.
    """
    store.set(f"towards/{rank}", reached[0] if reached[1] else "")
    others = functools.partial(_read_all, store, "towards", size, timeout_s)
    try:
        own = Place(socket.gethostname(), own_address(interface, reached, others))
    except AsrtoolError as error:
        if not interface:
            raise
        own = Place(socket.gethostname(), "", fault=error.what)
    with contextlib.ExitStack() as stack:
        if own.address:
            listening = socket.create_server((own.address, 0), family=_family(own.address), backlog=BACKLOG)
            server = stack.enter_context(listening)
            own = dataclasses.replace(own, port=server.getsockname()[1])
        store.set(f"place/{rank}", json.dumps(vars(own)))
        places = [Place(**json.loads(found)) for found in _read_all(store, "place", size, timeout_s)]
        for other, place in enumerate(places):
            if not place.address:
                raise AsrtoolError(
                    f"learner {other} on {place.host}: {place.fault}",
                    "name an interface that all have, or a subnet that has an address of each",
                )
        store.set(f"reached/{rank}", json.dumps(try_places(places, own, timeout_s / 2)))
        for other, found in enumerate(_read_all(store, "reached", size, timeout_s)):
            if fault := json.loads(found):
                raise unreached(other, places[other], *fault)
    return places


def known_addresses(store: Store, size: int) -> list[str]:
    """Those of the learners that training began with on several hosts, for one that joins; empty if on one host."""
    keys = [f"place/{rank}" for rank in range(size)]
    return [json.loads(store.get(key))["address"] for key in keys] if store.check(keys) else []


def try_places(places: Sequence[Place], own: Place, timeout_s: float) -> tuple[str, str] | None:
    """Connect to one of `places` on each other host; the first that fails, with the interface, and why."""
    here = own.host, own.address
    for place in {(place.host, place.address): place for place in places}.values():
        if (place.host, place.address) == here:
            continue
        try:
            source = (own.address, 0)
            socket.create_connection((place.address, place.port), timeout_s, source_address=source).close()
        except OSError as error:
            return f"{place.address} of {place.host}", f"{error} (by {interface_of(own.address)})"
    return None


def unreached(rank: int, own: Place, other: str, why: str) -> AsrtoolError:
    """That learner `rank` does not reach the one at `other`."""
    return AsrtoolError(
        f"learner {rank} on {own.host} cannot reach a learner at {other} from {own.address}: {why}",
        "set distributed.interface to the network, by name or subnet, on which all hosts reach each other, and let "
        "them pass all ports",
    )


def _read_all(store: Store, name: str, size: int, timeout_s: float) -> list[str]:
    """What all learners have left under `name`, by rank; AsrtoolError if some have not after `timeout_s`."""
    keys = [f"{name}/{rank}" for rank in range(size)]
    try:
        store.wait(keys, timedelta(seconds=timeout_s))
    except RuntimeError:
        missing = ", ".join(str(rank) for rank, key in enumerate(keys) if not store.check([key]))
        raise AsrtoolError(
            f"all learners met at the rendezvous, then rank {missing} of {size} was silent for {timeout_s:g} s",
            "see the logs of these ranks and their hosts, then run the same command again",
        ) from None
    return [store.get(key).decode() for key in keys]


def use_for_groups(address: str, several_hosts: bool) -> None:
    """Have gloo and NCCL use the interface of `address`, unless the user has chosen one."""
    if name := interface_of(address):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        if several_hosts:  # on one host NCCL needs no network
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")


def address_on(interface: str) -> str:
    """The address of this host on `interface`, its name or a subnet such as 10.1.0.0/16.

    AsrtoolError, with the interfaces that there are, if it has none there.
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
    """The name of the interface of this host that has `address`; empty if none is known to."""
    return next((name for name, own in own_addresses() if own == address), "")


def own_addresses() -> list[tuple[str, str]]:
    """The interfaces of this host with their addresses, of IPv4 first; of Linux alone."""
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


def new_context() -> zmq.Context[Any]:
    """Of sockets that listen on addresses of IPv4 and of IPv6."""
    context: zmq.Context[Any] = zmq.Context()
    context.setsockopt(zmq.IPV6, 1)
    return context


def url_of(address: str) -> str:
    """As ZeroMQ takes it, without a port."""
    return f"tcp://[{address}]" if ":" in address else f"tcp://{address}"


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
