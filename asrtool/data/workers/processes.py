"""Processes that read audio and write features; results come in order."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any

from asrtool.child_processes import end_with
from asrtool.errors import AsrtoolError
from asrtool.files import FULL

MapPieces = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]  # results in the order of the items
TRIES = 3  # of a piece that fails for a reason that may pass
AHEAD = 4  # pieces for each process that are begun before the first of them is finished


@dataclass
class Piece:
    """An item, and how often it was lost with the process that had it."""

    number: int
    item: Any
    tries: int = 0

    @property
    def name(self) -> str:
        """Title for error messages."""
        return str(getattr(self.item, "name", f"piece {self.number}"))


def numbered(items: Iterable[Any]) -> Iterator[Piece]:
    """Items as pieces."""
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
    """The error for a piece that has failed so many times."""
    reason = " ".join(why.split())
    return AsrtoolError(
        f"{piece.name} failed {times} times, the last time because {reason}",
        "run the same command again; where memory is short, with fewer processes or workers",
    )


def process_context(preload: str) -> ForkServerContext | SpawnContext:
    """Return the context of processes that run code of the module `preload`.

    Forking a process with threads is not safe. A server imports torch and lhotse once and forks.
    """
    if not _has_room_for_a_server():
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
        return
    pool = _Pool(process_context(module), num_jobs)
    try:
        yield pool.map
    finally:
        pool.end()


@dataclass
class _Worker:
    process: Any
    connection: Connection
    piece: Piece | None = None


class _Pool:
    """Processes, each with its own pipe, so one's death does not affect the others."""

    def __init__(self, context: ForkServerContext | SpawnContext, num_jobs: int) -> None:
        self._context, self._num_jobs = context, num_jobs
        self._workers: list[_Worker] = []

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """The results in the order of `items`, which are read a little ahead."""
        coming, again = numbered(items), deque[Piece]()
        done: dict[int, Any] = {}
        first = 0  # whose result is yielded next
        more = True
        while more or again or done or self._busy():
            while self._free() and (again or (more and self._newest(done, first) < first + AHEAD * self._num_jobs)):
                piece = again.popleft() if again else next(coming, None)
                if piece is None:
                    more = False
                    break
                self._send(function, piece)
            for worker in self._finished():
                assert worker.piece is not None
                piece, worker.piece = worker.piece, None
                try:
                    good, result = worker.connection.recv()
                except (EOFError, OSError):
                    self._remove(worker, piece)
                    again.append(piece)
                    continue
                if not good:
                    raise result
                done[piece.number] = result
            while first in done:
                yield done.pop(first)
                first += 1

    def end(self) -> None:
        """Also of those that are at work."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        self._workers.clear()

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.piece]

    def _free(self) -> bool:
        return len(self._busy()) < self._num_jobs

    def _newest(self, done: dict[int, Any], first: int) -> int:
        under_way = [worker.piece.number for worker in self._workers if worker.piece]
        return max([first - 1, *done, *under_way])

    def _send(self, function: Callable[[Any], Any], piece: Piece) -> None:
        idle = next((worker for worker in self._workers if not worker.piece), None)
        worker = idle or self._start()
        worker.piece = piece
        with contextlib.suppress(OSError):  # killed while it had nothing to do: `_finished` finds the end of the pipe
            worker.connection.send((function, piece))

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))
        return self._workers[-1]

    def _finished(self) -> list[_Worker]:
        ready = wait([worker.connection for worker in self._busy()]) if self._busy() else []
        return [worker for worker in self._busy() if worker.connection in ready]

    def _remove(self, worker: _Worker, piece: Piece) -> None:
        """Remove a killed process; AsrtoolError after TRIES with its piece."""
        worker.process.join()
        worker.connection.close()
        self._workers.remove(worker)
        piece.tries += 1
        if piece.tries >= TRIES:
            raise given_up(piece, f"its process was ended {_cause(worker.process.exitcode or 0)}")


def _cause(exit_code: int) -> str:
    return f"by signal {-exit_code}, perhaps for want of memory" if exit_code < 0 else f"with code {exit_code}"


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


def _has_room_for_a_server() -> bool:
    """Return whether the server's socket path fits the system's limit.

    It is 103 bytes on a Mac.
    """
    return len(os.fsencode(tempfile.gettempdir() + "/pymp-12345678/listener-12345678")) <= 103
