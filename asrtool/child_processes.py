"""Processes that end with the one that started them, and the signals by which both are asked to stop."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # prctl(2)
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def fork_child() -> int:
    """Fork: the child, in which it returns 0 and which ends with this process. Here STOPS wait until `on_stop`."""
    sys.stdout.flush()
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # here, until it is known what to do with the child
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        end_with(parent)
    return child


def on_stop(act: Callable[[int], object] | signal.Handlers) -> None:
    """What this process does when it is asked to stop by a signal of that number; not by one that it ignores."""
    handler = (lambda number, _: act(number)) if callable(act) else act
    for number in STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def ending_with_parent() -> Callable[[], None] | None:
    """What a child calls to have the kernel send it SIGTERM when its parent, this process, is killed.

    Where that has been killed already, the child ends there. None where the kernel does not do so. Made before the
    fork, because after it a child must load nothing.
    """
    ask, parent = _asking_the_kernel(), os.getpid()
    if ask is None:
        return None

    def end() -> None:
        ask()
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return end


def end_with(parent: int) -> None:
    """Have the kernel end this process with `parent`, which started it; exits where that has been killed already."""
    if ask := _asking_the_kernel():
        ask()
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


def name_process(name: str) -> None:
    """Have `ps -o comm` and `top` show this process by a name of up to 15 characters, on Linux."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


def _asking_the_kernel() -> Callable[[], object] | None:
    """What a process calls to get SIGTERM when its parent is killed, from then on; None where that cannot be."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
