"""Share work among forked processes in pieces; results come in order."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from threadpoolctl import threadpool_limits

from asrtool.data.workers.processes import ProcessPool, num_cores, numbered, torch_threads

PIECE = 8  # items that a process is given at a time, at most
PIECES = 4  # for each process, at least, so that all of them have work until the end
AHEAD = 2  # pieces for each process: enough that none waits, few enough that memory stays bounded

Work = Callable[[list[Any]], list[Any]]  # items to as many results
Map = Callable[[Iterable[Any], int], Iterator[Any]]  # items, and about how many, to their results in order


def one_by_one(function: Callable[[Any], Any]) -> Work:
    """Return a function of lists that applies `function` to each item."""
    return lambda items: [function(item) for item in items]


def cores_left(num_jobs: int) -> int:
    """Return the cores that `num_jobs` processes leave, at least one."""
    return num_cores() if num_jobs == 1 else max(1, num_cores() - num_jobs)


def pieces_of(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield `items` in lists of `size`, the last one shorter."""
    remaining = iter(items)
    while piece := list(itertools.islice(remaining, size)):
        yield piece


@contextlib.contextmanager
def process_pool(work: Work, num_jobs: int) -> Iterator[Map]:
    """Yield a lazy, ordered map by `work` in `num_jobs` forked processes.

    One job runs in this process. NumPy has one thread in each: its matrices are small, and waiting threads need
    several times the CPU time. `work` may hold objects that cannot be pickled (a graph) or should not be copied (a
    language model); items and results are pickled. The processes end when this one is killed (on Linux).
    """
    if num_jobs == 1:
        with threadpool_limits(1, "blas"):
            yield lambda items, total: (result for piece in pieces_of(items, PIECE) for result in work(piece))
        return
    context = multiprocessing.get_context("fork")

    def map_items(items: Iterable[Any], total: int) -> Iterator[Any]:
        size = max(1, min(PIECE, total // (PIECES * num_jobs)))
        for results in pool.map(numbered(pieces_of(items, size)), AHEAD):
            yield from results

    with contextlib.closing(ProcessPool(context, lambda piece: work(piece.item), num_jobs, _one_thread)) as pool:
        yield map_items


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    with torch_threads(1), threadpool_limits(1, "blas"):
        yield
