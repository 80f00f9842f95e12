"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # prctl(2)


def ending_with_parent() -> Callable[[], object] | None:
    """What a child calls to have the kernel send it SIGTERM when its parent is killed; None where that cannot be.

    Made before the fork, because after it a child must load nothing.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end_with(parent: int) -> None:
    """Have the kernel end this process with `parent`, which started it; exits where that has been killed already."""
    if end := ending_with_parent():
        end()
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)
