"""Learners in processes of a test: their rendezvous, and how long to wait for them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from torch.distributed import TCPStore

HOST = "127.0.0.1"
ENDED_S = 480  # bounds a hang, however slow the machine


def wait_until(is_so: Callable[[], object], why_not: Callable[[], object] = str) -> None:
    """Wait for that, and bound a hang."""
    until = time.monotonic() + ENDED_S
    while not is_so():
        assert time.monotonic() < until, why_not()
        time.sleep(0.01)


@contextlib.contextmanager
def rendezvous_address() -> Iterator[dict[str, str]]:
    """Yield what to put into the environment of learners, whose rendezvous is a store of this process.

    Its port is taken from the beginning, as with the launcher. A free port that learner 0 were to take later, once it
    has loaded torch, could be another process's by then.
    """
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    yield {
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": str(True),
        "TORCHELASTIC_RESTART_COUNT": "0",  # an older torch reads it
    }
