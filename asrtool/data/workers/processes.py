"""Work in processes of this machine; results come in order."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext
from typing import Any

from asrtool.child_processes import end_with
from asrtool.errors import AsrtoolError
from asrtool.files import FULL

MapPieces = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]  # results in the order of the items
TRIES = 3  # attempts at a piece that fails for a temporary reason
POLL_S = 0.2  # longest delay until a killed process is noticed
AHEAD = 4  # pieces for each process that are begun before the first of them is finished


@dataclass(frozen=True)
class Piece:
    """An item, by its number."""

    number: int
    item: Any

    @property
    def name(self) -> str:
        """Title for error messages."""
        return str(getattr(self.item, "name", f"piece {self.number}"))


def numbered(items: Iterable[Any]) -> Iterator[Piece]:
    """Return an iterator of items as pieces."""
    return itertools.starmap(Piece, enumerate(items))


def attempt(function: Callable[[Any], Any], piece: Piece) -> Any:
    """Call `function`; retry after an I/O error, TRIES times in all.

    Raises AsrtoolError naming the piece after the last, OSError at once if the disk is full.
    """
    for number in range(1, TRIES + 1):
        try:
            return function(piece.item)
        except OSError as error:
            if error.errno in FULL:
                raise
            if number == TRIES:
                raise given_up(piece, str(error)) from error
    raise AssertionError(piece)


def given_up(piece: Piece, why: str, times: int = TRIES) -> AsrtoolError:
    """Return the error for a piece that failed `times` times."""
    reason = " ".join(why.split())
    return AsrtoolError(
        f"{piece.name} failed {times} times, the last time because {reason}",
        "run the same command again; where memory is short, with fewer processes or workers",
    )


def process_context(preload: str) -> ForkServerContext | SpawnContext:
    """Return the context of processes that run code of the module `preload`.

    Forking a process with threads is not safe. A server imports torch and lhotse once and forks. The path of its
    socket has to fit the system's limit, which is 103 bytes on a Mac.
    """
    if len(os.fsencode(tempfile.gettempdir() + "/pymp-12345678/listener-12345678")) > 103:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    return context


_in_pool = False  # True in a process of a pool: then all cores have one


def num_cores() -> int:
    """Return the cores this process may use; one in a process of a pool."""
    if _in_pool:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def torch_threads(num_threads: int) -> Iterator[None]:
    """Give torch, if it is imported, at most `num_threads` threads inside the context.

    Its threads wait for each other in busy loops, which is slow on shared cores: beside two searches on two cores, two
    threads took six times as long as one. With more than one, the last bits of a sum depend on their number.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(min(num_threads, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def process_map(module: str, num_jobs: int) -> Iterator[MapPieces]:
    """Yield a MapPieces over up to `num_jobs` processes for functions of `module`.

    One job runs in this process.
    """
    if num_jobs == 1:
        yield lambda function, items: (attempt(function, piece) for piece in numbered(items))
    else:
        context = process_context(module)
        yield lambda function, items: _map(context, function, num_jobs, items)


def _map(
    context: ForkServerContext | SpawnContext, function: Callable[[Any], Any], num_jobs: int, items: Iterable[Any]
) -> Iterator[Any]:
    with contextlib.closing(ProcessPool(context, functools.partial(attempt, function), num_jobs)) as pool:
        yield from pool.map(numbered(items), AHEAD)


class ProcessPool:
    """Processes that turn pieces into results, each with a thread here.

    A killed process is replaced, and its piece done again. The main thread alone starts processes: the kernel ends
    one with the thread that forked it.
    """

    def __init__(
        self,
        context: ForkContext | ForkServerContext | SpawnContext,
        work: Callable[[Piece], Any],
        num_jobs: int,
        around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        """Start the processes; each enters the context `around()` first."""
        self._context, self._work, self._around, self._num_jobs = context, work, around, num_jobs
        self._processes: list[Any] = []
        self._idle: queue.SimpleQueue[tuple[Any, Connection] | None] = queue.SimpleQueue()  # None at the end
        self._killed: queue.SimpleQueue[None] = queue.SimpleQueue()  # killed processes that are not replaced yet
        self._lock = threading.Lock()  # a start looks at all processes, and only one thread may reap a process
        self._is_closed = False
        for _ in range(num_jobs):
            self._start()
        self._threads = futures.ThreadPoolExecutor(num_jobs)

    def map(self, pieces: Iterable[Piece], ahead: int) -> Iterator[Any]:
        """Yield results in order, `ahead` pieces a process begun before the first ends.

        Raises AsrtoolError if TRIES processes are killed with one piece.
        """
        begun: deque[futures.Future[Any]] = deque()
        for piece in pieces:
            begun.append(self._threads.submit(self._compute, piece))
            if len(begun) >= ahead * self._num_jobs:
                yield self._wait_for(begun.popleft())
        while begun:
            yield self._wait_for(begun.popleft())

    def close(self) -> None:
        """End the processes, also those that are at work."""
        with self._lock:
            self._is_closed = True
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.join()
        self._idle.put(None)
        self._threads.shutdown(cancel_futures=True)

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        parent = os.getpid() if self._context.get_start_method() == "fork" else 0
        with self._lock, warnings.catch_warnings():
            # Python 3.12 warns of threads at a fork. A child has one thread, of torch and BLAS as well.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            process = self._context.Process(target=_serve, args=(self._work, self._around, theirs, parent), daemon=True)
            process.start()
            self._processes.append(process)
        theirs.close()  # the connection then ends with the process
        self._idle.put((process, ours))

    def _wait_for(self, result: futures.Future[Any]) -> Any:
        while True:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._killed.get_nowait()
                    self._start()
            with contextlib.suppress(futures.TimeoutError):
                return result.result(POLL_S)

    def _compute(self, piece: Piece) -> Any:
        """Compute a piece in a process, in another one if that is killed."""
        for _ in range(TRIES):
            idle = self._idle.get()
            if idle is None:
                self._idle.put(None)  # for the other threads, and for the next piece of this one
                return None
            process, connection = idle
            try:
                connection.send(piece)
                result, error, trace = connection.recv()
            except (EOFError, OSError):
                cause = self._cause_of_death(process)
                continue
            self._idle.put(idle)
            if error is not None:
                raise error from RuntimeError(trace)
            return result
        raise given_up(piece, f"its process was ended {cause}")

    def _cause_of_death(self, process: Any) -> str:
        with self._lock:
            process.join()
        code = process.exitcode or 0
        cause = f"by signal {-code}, perhaps for want of memory" if code < 0 else f"with code {code}"
        if not self._is_closed:
            logging.warning("a process was ended %s: its piece is done again", cause)
            self._killed.put(None)
        return cause


def _serve(
    work: Callable[[Piece], Any], around: Callable[[], AbstractContextManager[Any]], connection: Connection, parent: int
) -> None:
    """Run a process: answer pieces with results or errors.

    `parent` is 0 in a child of a server, which ends with the process that started it.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a handler's exception would end the piece, not the process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent handles it
    global _in_pool
    _in_pool = True
    end_with(parent or os.getppid())
    with around(), contextlib.suppress(EOFError):
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
