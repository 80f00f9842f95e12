"""Timeouts by the time that this process runs, after which others are taken for lost.

All may be suspended together: Ctrl-Z, a cluster that suspends jobs. After they resume, more time has passed for each
than it waited for any other. So a timeout is made of short waits, of which such a pause is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
TIMEOUT_S = 20.0
PIECE_S = 2.0
NUM_PIECES = round(TIMEOUT_S / PIECE_S)


def wait_with_timeout(wait: Callable[[float], Value]) -> Value:
    """What `wait` (so many seconds) returns once that is true; after TIMEOUT_S, what it then returns."""
    for _ in range(NUM_PIECES - 1):
        if found := wait(PIECE_S):
            return found
    return wait(PIECE_S)
