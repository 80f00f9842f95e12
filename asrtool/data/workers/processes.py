"""Work in processes of this machine; results come in order."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any

from asrtool.child_processes import end_with
from asrtool.errors import AsrtoolError
from asrtool.files import FULL

MapPieces = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]  # results in the order of the items
TRIES = 3  # of a piece that fails for a reason that may pass
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


def num_cores() -> int:
    """Return the number of cores of this machine."""
    return os.cpu_count() or 1


@contextlib.contextmanager
def process_map(module: str, num_jobs: int) -> Iterator[MapPieces]:
    """Yield a MapPieces over up to `num_jobs` processes for functions of `module`.

    One job runs in this process. A killed process costs its piece, which another one computes.
    """
    if num_jobs == 1:
        yield lambda function, items: (attempt(function, piece) for piece in numbered(items))
    else:
        context = process_context(module)
        yield lambda function, items: _Pool(context, num_jobs, function).map(items)


class _Pool:
    """Processes, each with a thread here, so one's death does not affect the others."""

    def __init__(
        self, context: ForkServerContext | SpawnContext, num_jobs: int, function: Callable[[Any], Any]
    ) -> None:
        self._context, self._num_jobs, self._function = context, num_jobs, function
        self._of_thread = threading.local()
        self._lock = threading.Lock()  # a start looks at all processes, and only one may reap a process
        self._processes: set[Any] = set()
        self._is_stopped = False

    def map(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the results in the order of `items`, which are prefetched."""
        threads = ThreadPoolExecutor(self._num_jobs)
        coming = (threads.submit(self._compute, piece) for piece in numbered(items))
        try:
            begun = deque(itertools.islice(coming, AHEAD * self._num_jobs))
            while begun:
                yield begun.popleft().result()
                begun.extend(itertools.islice(coming, 1))
        finally:  # also when the caller wants no more
            self._end()
            threads.shutdown(cancel_futures=True)

    def _end(self) -> None:
        """End all processes, also those that are at work."""
        with self._lock:
            self._is_stopped = True
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.join()

    def _compute(self, piece: Piece) -> Any:
        """Have this thread's process compute a piece; another one if it is killed."""
        for _ in range(TRIES):
            process, connection = getattr(self._of_thread, "process", None) or self._start()
            try:
                connection.send((self._function, piece))
                is_good, result = connection.recv()
            except (EOFError, OSError):
                cause = self._cause_of_death(process)
                continue
            if is_good:
                return result
            raise result
        raise given_up(piece, f"its process was ended {cause}")

    def _start(self) -> tuple[Any, Connection]:
        ours, theirs = self._context.Pipe()
        with self._lock:
            if self._is_stopped:
                raise InterruptedError
            process = self._context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            self._processes.add(process)
        theirs.close()
        self._of_thread.process = process, ours
        return self._of_thread.process

    def _cause_of_death(self, process: Any) -> str:
        self._of_thread.process = None
        with self._lock:
            process.join()
            self._processes.discard(process)
        code = process.exitcode or 0
        return f"by signal {-code}, perhaps for want of memory" if code < 0 else f"with code {code}"


def _work(connection: Connection) -> None:
    """Run pieces in a process until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the first one answers it
    end_with(os.getppid())  # of a server, which ends with the process that started it
    while True:
        try:
            function, piece = connection.recv()
        except EOFError:
            return
        try:
            answer = True, attempt(function, piece)
        except Exception as error:
            answer = False, error
        connection.send(answer)
