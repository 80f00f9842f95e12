"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
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
