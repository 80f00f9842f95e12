"""Share work among forked processes in pieces; results come in order."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import queue
import signal
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from asrtool.child_processes import end_with
from asrtool.errors import AsrtoolError

PIECE = 8  # items that a process is given at a time, at most
PIECES = 4  # for each process, at least, so that all of them have work until the end
UNDER_WAY = 2  # pieces sent ahead for each process: enough that none waits, few enough that memory stays bounded
ATTEMPTS = 3  # processes that a piece may be lost with
POLL_S = 0.2  # how long a killed process is noticed after, at most

Work = Callable[[list[Any]], list[Any]]  # items to as many results


Map = Callable[[Iterable[Any], int], Iterator[Any]]  # items, and about how many, to their results in order


_in_pool = False  # whether this process is one of a pool: all cores have one then


def num_cores() -> int:
    """Return the cores this process may use; one in a process of a pool."""
    if _in_pool:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_by_one(function: Callable[[Any], Any]) -> Work:
    """Return a function of lists that applies `function` to each item."""
    return lambda items: [function(item) for item in items]


def cores_left(num_jobs: int) -> int:
    """Return the cores that `num_jobs` processes leave, at least one."""
    return num_cores() if num_jobs == 1 else max(1, num_cores() - num_jobs)


def pieces_of(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield `items` in lists of `size`, the last one shorter."""
    remaining = iter(items)
    while piece := list(islice(remaining, size)):
        yield piece


@contextlib.contextmanager
def process_pool(work: Work, num_jobs: int) -> Iterator[Map]:
    """Yield a lazy, ordered map by `work` in `num_jobs` forked processes.

    One job runs in this process. NumPy has one thread in each: its matrices are small, and waiting threads need
    several times the CPU time. `work` may hold objects that cannot be pickled (a graph) or should not be copied (a
    language model); items and results are pickled. The processes end when this one is killed (on Linux). If one is
    killed, a new one repeats its piece. Raises AsrtoolError if ATTEMPTS of them are killed with one piece.
    """
    if num_jobs == 1:
        with threadpool_limits(1, "blas"):
            yield lambda items, total: (result for piece in pieces_of(items, PIECE) for result in work(piece))
        return
    pool = _Pool(work, num_jobs)
    try:
        yield pool.map
    finally:
        pool.close()


class _Pool:
    """Threads that pass pieces to processes, which the main thread alone forks.

    The kernel ends a process with the thread that forked it.
    """

    def __init__(self, work: Work, num_jobs: int) -> None:
        self.work = work
        self.num_jobs = num_jobs
        self.processes: list[BaseProcess] = []
        self.idle: queue.SimpleQueue[Connection | None] = queue.SimpleQueue()  # to processes; None at the end
        self.killed: queue.SimpleQueue[None] = queue.SimpleQueue()  # of processes that are not replaced yet
        self.is_ending = False
        for _ in range(num_jobs):
            self._start_process()
        self.threads = futures.ThreadPoolExecutor(num_jobs)

    def map(self, items: Iterable[Any], total: int) -> Iterator[Any]:
        """Map items in order."""
        under_way: deque[futures.Future[list[Any]]] = deque()
        for piece in pieces_of(items, max(1, min(PIECE, total // (PIECES * self.num_jobs)))):
            if len(under_way) >= UNDER_WAY * self.num_jobs:
                yield from self._wait_for(under_way.popleft())
            under_way.append(self.threads.submit(self._ask, piece))
        while under_way:
            yield from self._wait_for(under_way.popleft())

    def close(self) -> None:
        """End the processes, whatever they do."""
        self.is_ending = True
        for process in self.processes:
            process.kill()
            process.join()
        self.idle.put(None)
        self.threads.shutdown(cancel_futures=True)

    def _start_process(self) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(self.work, theirs, os.getpid()), daemon=True)
        with warnings.catch_warnings():
            # Python 3.12 warns of threads at a fork. A child has one thread, of torch and BLAS as well.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            process.start()
        theirs.close()  # so that the end of the process is that of the connection
        self.processes.append(process)
        self.idle.put(ours)

    def _wait_for(self, piece: futures.Future[list[Any]]) -> list[Any]:
        while True:
            with contextlib.suppress(queue.Empty):
                while True:
                    self.killed.get_nowait()
                    self._start_process()
            with contextlib.suppress(futures.TimeoutError):
                return piece.result(POLL_S)

    def _ask(self, piece: list[Any]) -> list[Any]:
        for _ in range(ATTEMPTS):
            connection = self.idle.get()
            if connection is None:
                self.idle.put(None)  # for the other threads, and for the next piece of this one
                return []
            try:
                connection.send(piece)
                results, error, trace = connection.recv()
            except (EOFError, OSError):
                if not self.is_ending:
                    logging.warning("a search process was killed, perhaps for want of memory: its piece is done again")
                    self.killed.put(None)
                continue
            self.idle.put(connection)
            if error is not None:
                raise error from RuntimeError(trace)
            found: list[Any] = results
            return found
        what = f"a search process was killed {ATTEMPTS} times on the same utterances, perhaps for want of memory"
        raise AsrtoolError(what, "lower decode.num_jobs and run again")


def _serve(work: Work, connection: Connection, parent: int) -> None:
    """Turn pieces into results, or into the error that one raised, in a process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a handler's exception would end the item, not the process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that is asked to stop ends this one
    global _in_pool
    _in_pool = True
    end_with(parent)
    torch.set_num_threads(1)
    with threadpool_limits(1, "blas"), contextlib.suppress(EOFError):
        while True:
            piece = connection.recv()
            try:
                answer: tuple[Any, ...] = (work(piece), None, "")
            except Exception as error:  # passed on
                answer = (None, error, traceback.format_exc())
            try:
                connection.send(answer)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                connection.send((None, RuntimeError(f"cannot be sent: {error}"), answer[2]))
