"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # prctl(2)


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


def _asking_the_kernel() -> Callable[[], object] | None:
    """What a process calls to get SIGTERM when its parent is killed, from then on; None where that cannot be."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
