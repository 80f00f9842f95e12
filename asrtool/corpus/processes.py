"""Processes that read audio and write features: how they are started."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any

from asrtool.errors import AsrtoolError

MapJobs = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


def process_context(preload: str) -> ForkServerContext | SpawnContext:
    """To start processes that run what is in the module `preload`.

    Forking this process is not safe once it has threads. A server process imports torch and lhotse once and forks.
    """
    if not _has_room_for_a_server():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    return context


def num_cores() -> int:
    """Of this machine."""
    return os.cpu_count() or 1


@contextmanager
def process_map(module: str, num_jobs: int) -> Iterator[MapJobs]:
    """Yield a `map` of functions of `module` over `num_jobs` processes, in order; one job runs in this process.

    Raises AsrtoolError when one of them is killed.
    """
    if num_jobs == 1:
        yield map
        return
    # Ctrl-C reaches every process of a terminal; this one alone answers it.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    executor = ProcessPoolExecutor(num_jobs, process_context(module), initializer=signal.signal, initargs=ignore)
    try:
        yield executor.map
    except BrokenProcessPool as error:
        what = "a process that reads audio was killed, perhaps for want of memory"
        raise AsrtoolError(what, "lower features.num_jobs and run again") from error
    finally:
        executor.shutdown(cancel_futures=True)


def _has_room_for_a_server() -> bool:
    """Whether its socket, in the folder of temporary files, has a name that the system takes: 103 bytes on a Mac."""
    return len(os.fsencode(tempfile.gettempdir() + "/pymp-12345678/listener-12345678")) <= 103
