"""Hosts on this machine behind an Ethernet switch, also with slow and lossy links.

Hosts are network namespaces. The switch is a bridge of the kernel; for slow and lossy links it is a process of Python
with a TAP device in each host, since not every kernel has netem. Needs root and iproute2.

    benchmarks/switch.py PREFIX NUM DELAY_MS LOSS MBIT        # forwards frames until it is killed
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from hosts import CLONE_NEWNET, Host

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000  # of linux/if_tun.h
QUEUE_S = 0.2  # of frames that wait for a link; more are dropped
FRAME_BYTES = 1 << 16


@dataclass(frozen=True)
class Link:
    """Link between a host and the switch."""

    delay_ms: float = 0.0  # one way, from host to host
    loss: float = 0.0  # fraction of frames
    mbit: float = 0.0  # a second that a host sends at most; 0 is no limit


@contextlib.contextmanager
def switched_hosts(num: int, link: Link) -> Iterator[list[Host]]:
    """Run hosts h1 to h`num`, which know one another by name, behind a switch."""
    prefix = f"switch{os.getpid()}-"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = folder / "hosts"
        names.write_text("127.0.0.1 localhost\n" + "".join(f"10.79.0.{k} h{k}\n" for k in range(1, num + 1)))
        for k in range(1, num + 1):
            ip("netns", "add", f"{prefix}{k}")
            stack.callback(ip, "netns", "del", f"{prefix}{k}")
        if link == Link():
            bridge = f"br{os.getpid()}"
            ip("link", "add", bridge, "up", "type", "bridge")
            stack.callback(ip, "link", "del", bridge)
            for k in range(1, num + 1):
                ip(*f"link add {bridge}p{k} master {bridge} up type veth peer name eth0 netns {prefix}{k}".split())
                set_up(f"{prefix}{k}", k)
        else:
            words = [sys.executable, __file__, prefix, num, link.delay_ms, link.loss, link.mbit]
            switch = stack.enter_context(subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE))
            stack.callback(switch.kill)
            assert switch.stdout
            assert switch.stdout.readline() == b"up\n"
        yield [Host(f"h{k}", f"{prefix}{k}", str(names)) for k in range(1, num + 1)]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def set_up(namespace: str, number: int) -> None:
    """Give the host its address."""
    for words in (f"addr add 10.79.0.{number}/24 dev eth0", "link set eth0 up", "link set lo up"):
        ip("-n", namespace, *words.split())


def open_tap(namespace: str, number: int) -> int:
    """Return a TAP device, eth0 of a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as own, open(f"/run/netns/{namespace}") as other:
        assert libc.setns(other.fileno(), CLONE_NEWNET) == 0
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", b"eth0", IFF_TAP | IFF_NO_PI))
        assert libc.setns(own.fileno(), CLONE_NEWNET) == 0
    set_up(namespace, number)
    return tap


def forward(taps: list[int], link: Link) -> None:
    """Forward frames between `taps` for ever."""
    ports: dict[bytes, int] = {}  # address of Ethernet -> its tap
    free = dict.fromkeys(taps, 0.0)  # when a host has sent its last frame
    on_their_way: list[tuple[float, int, int, bytes]] = []
    number = 0
    poll = select.poll()
    for tap in taps:
        poll.register(tap, select.POLLIN)
    while True:
        now = time.monotonic()
        while on_their_way and on_their_way[0][0] <= now:
            _, _, to, frame = heapq.heappop(on_their_way)
            with contextlib.suppress(OSError):
                os.write(to, frame)
        wait_ms = max(0.0, on_their_way[0][0] - now) * 1000 if on_their_way else 1000.0
        for tap, _ in poll.poll(wait_ms):
            frame, now = os.read(tap, FRAME_BYTES), time.monotonic()
            ports[frame[6:12]] = tap
            to_all = [other for other in taps if other != tap]
            begin = max(now, free[tap])
            if random.random() < link.loss or begin - now > QUEUE_S:
                continue
            free[tap] = begin + (len(frame) * 8e-6 / link.mbit if link.mbit else 0.0)
            for to in [ports[frame[:6]]] if frame[:6] in ports else to_all:
                number += 1
                heapq.heappush(on_their_way, (free[tap] + link.delay_ms / 1000, number, to, frame))


if __name__ == "__main__":
    prefix, num, *values = sys.argv[1:]
    opened = [open_tap(f"{prefix}{k}", k) for k in range(1, int(num) + 1)]
    print("up", flush=True)
    forward(opened, Link(*map(float, values)))
