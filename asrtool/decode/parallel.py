"""Work shared among forked processes, results in order, a bounded number of items under way."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from threadpoolctl import threadpool_limits

from asrtool.errors import AsrtoolError
from asrtool.parent import end_with

UNDER_WAY = 4  # items sent ahead for each process: enough that none waits, few enough that memory stays bounded

_function: Callable[[Any], Any]


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_left(num_jobs: int) -> int:
    """Cores that `num_jobs` processes leave for the threads of this one, at least one; all where it does their work."""
    return num_cores() if num_jobs == 1 else max(1, num_cores() - num_jobs)


@contextlib.contextmanager
def process_pool(function: Callable[[Any], Any], num_jobs: int) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    """Yield a lazy, ordered map of `function` over items, in `num_jobs` processes; in this process for one.

    NumPy has one thread in each: its matrices are small, and threads that wait for each other on cores that are taken
    need several times the CPU time. The processes are forked at once, so `function` may hold what cannot be pickled (a
    graph) or should not be copied (a language model); items and results are pickled. They end when this one is killed
    (on Linux). Raises AsrtoolError when one of them is killed.
    """
    if num_jobs == 1:
        with threadpool_limits(1, "blas"):
            yield lambda items: map(function, items)
        return
    inherited = (function, os.getpid())
    executor = ProcessPoolExecutor(num_jobs, multiprocessing.get_context("fork"), _inherit, inherited)
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of threads at a fork. The children leave torch alone, and BLAS starts anew in each.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            executor.submit(os.getpid).result()
        yield lambda items: _ordered(executor, items, num_jobs * UNDER_WAY)
    except BrokenProcessPool as error:
        raise AsrtoolError(
            "a search process was killed, perhaps for want of memory", "lower decode.num_jobs and run again"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def _ordered(executor: ProcessPoolExecutor, items: Iterable[Any], most: int) -> Iterator[Any]:
    pending: deque[Future[Any]] = deque()
    for item in items:
        if len(pending) >= most:
            yield pending.popleft().result()
        pending.append(executor.submit(_call, item))
    while pending:
        yield pending.popleft().result()


def _inherit(function: Callable[[Any], Any], parent: int) -> None:
    global _function
    _function = function
    threadpool_limits(1, "blas")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a handler's exception would end the item, not the process
    end_with(parent)


def _call(item: Any) -> Any:
    return _function(item)
