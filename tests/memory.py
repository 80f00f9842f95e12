"""Memory that Python allocates, for tests."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak_bytes(function: Callable[[], object]) -> int:
    """The most that is allocated at once while `function` runs.

    The least of two runs: in one of them tables of the whole process may grow, as that of interned strings, by half a
    megabyte; and the first one may fill caches.
    """
    return min(_peak_bytes(function) for _ in range(2))


def _peak_bytes(function: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
