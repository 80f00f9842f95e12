"""Fixtures of the language tests."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_room() -> Iterator[None]:
    """Files cannot grow beyond one KiB, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)
