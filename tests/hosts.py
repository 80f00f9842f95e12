"""Hosts on this machine, connected by a cable: network namespaces with host names and /etc/hosts of their own."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x20000, 0x4000000, 0x40000000  # of linux/sched.h
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000  # of linux/mount.h
NUMBERS = itertools.count()  # of the namespaces of this process


@dataclass(frozen=True)
class Host:
    """Host on this machine."""

    name: str
    namespace: str
    names: str  # a file in the form of /etc/hosts

    def command(self, words: Sequence[str]) -> list[str]:
        """Return a command line that runs `words` on this host."""
        script = f"import os, sys; sys.path.append({str(Path(__file__).parent)!r}); from hosts import Host; "
        script += f"{self!r}.enter(); os.execv(sys.argv[1], sys.argv[1:])"
        return [sys.executable, "-c", script, *words]

    def enter(self) -> None:
        """Have this process, which has one thread, and its children be on this host."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{self.namespace}") as namespace:
            _check(libc.setns(namespace.fileno(), CLONE_NEWNET))
        _check(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS))
        socket.sethostname(self.name)
        _check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
        _check(libc.mount(self.names.encode(), b"/etc/hosts", None, MS_BIND, None))

    def ip(self, words: str) -> None:
        """Run `ip` there."""
        _ip("-n", self.namespace, *words.split())


def _check(code: int) -> None:
    if code:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def why_not() -> str:
    """Why there can be no hosts here; empty if there can."""
    if not shutil.which("ip"):
        return "needs ip of iproute2"
    if os.geteuid():
        return "needs root, for network namespaces"
    name = f"asrtool-{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
        _ip("-n", name, "addr", "add", "fd79::1/64", "dev", "eth0")
    except (subprocess.CalledProcessError, OSError):
        return "needs the right to make network namespaces with veth devices and IPv6"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return ""


@contextlib.contextmanager
def two_hosts(folder: Path, addresses: Sequence[str], names: Sequence[Mapping[str, str]]) -> Iterator[list[Host]]:
    """Hosts h1 and h2 with these `addresses` on eth0, each with the addresses of `names`."""
    hosts = []
    for number, known in enumerate(names, 1):
        path = folder / f"hosts.{number}"
        path.write_text("".join(f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **known}.items()))
        hosts.append(Host(f"h{number}", f"asrtool-{os.getpid()}-{next(NUMBERS)}", str(path)))
    try:
        for host in hosts:
            _ip("netns", "add", host.namespace)
        first, second = hosts
        first.ip(f"link add eth0 type veth peer name eth0 netns {second.namespace}")
        for host, address in zip(hosts, addresses, strict=True):
            host.ip("link set lo up")
            host.ip(f"addr add {address} dev eth0" + (" nodad" if ":" in address else ""))
            host.ip("link set eth0 up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True)
