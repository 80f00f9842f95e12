"""The rendezvous of learners in processes of a test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch.distributed import TCPStore

HOST = "127.0.0.1"


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
