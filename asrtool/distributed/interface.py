"""The addresses that this machine has, and the one that a person chooses among them. Of Linux alone."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct

from asrtool.errors import AsrtoolError

GET_ADDRESS = 0x8915  # SIOCGIFADDR of linux/sockios.h
REQUEST = struct.Struct(
    "16s4x4s232x"
)  # struct ifreq, filled up: a name, then a sockaddr_in whose address is at byte 20


def address_on(interface: str) -> str:
    """The IPv4 address of this machine on `interface`, its name or a subnet such as 10.1.0.0/16.

    AsrtoolError, with the interfaces that there are, where it has none there.
    """
    addresses = own_addresses()
    if "/" in interface:
        subnet = ipaddress.IPv4Network(interface, strict=False)
        inside = [address for address in addresses.values() if ipaddress.IPv4Address(address) in subnet]
    else:
        inside = [address for name, address in addresses.items() if name == interface]
    if inside:
        return inside[0]
    known = ", ".join(f"{name} ({address})" for name, address in addresses.items())
    raise AsrtoolError(
        f"distributed.interface is {interface!r}; a machine of the learners has {known}",
        "name an interface that all have, or a subnet that has an address of each",
    )


def own_addresses() -> dict[str, str]:
    """Name -> IPv4 address of each network interface of this machine that has one."""
    addresses = {}
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no IPv4 address, or is gone by now
                answer = fcntl.ioctl(asking.fileno(), GET_ADDRESS, REQUEST.pack(name.encode(), b""))
                addresses[name] = socket.inet_ntoa(REQUEST.unpack(answer)[1])
    return addresses
