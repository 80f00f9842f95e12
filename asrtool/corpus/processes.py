"""Processes that read and write features: how they are started."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from multiprocessing.context import ForkServerContext, SpawnContext


def process_context(preload: str) -> ForkServerContext | SpawnContext:
    """To start processes that run what is in the module `preload`.

    Forking this process is not safe once it has threads. A server process imports torch and lhotse once and forks.
    """
    if not _has_room_for_a_server():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    return context


def _has_room_for_a_server() -> bool:
    """Whether its socket, in the folder of temporary files, has a name that the system takes: 103 bytes on a Mac."""
    return len(os.fsencode(tempfile.gettempdir() + "/pymp-12345678/listener-12345678")) <= 103
