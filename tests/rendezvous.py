"""Learners in processes of a test: their start and their rendezvous."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext

from torch.distributed import TCPStore

HOST = "127.0.0.1"
# What a training imports: seconds of each process that does it for itself.
IMPORTED = ["asrtool.train.loop", "asrtool.train.shards", "torch._dynamo", "torch.utils.tensorboard"]


def warm_context() -> ForkServerContext:
    """Its processes are forked from one that has `IMPORTED`, if this is the first to start such a server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


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
