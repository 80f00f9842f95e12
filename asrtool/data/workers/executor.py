"""Executors of pieces of work: processes of this machine, or Dask workers.

Both take a function of a module and items, read a little ahead, and yield results in order. A worker that is killed
costs its piece, which is computed again. If a cluster has no worker left, this is logged, and others are waited for.
A worker holds what it reads for many pieces, see `keep_open`.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from asrtool.data.workers.processes import AHEAD, MapPieces, Piece, attempt, given_up, num_cores, numbered, process_map
from asrtool.errors import AsrtoolError, require
from asrtool.settings.data import Features
from asrtool.settings.schema import DASK

CONNECT_S = 10  # timeout of the connection to the scheduler
POLL_S = 0.02  # between two checks for results; each worker has AHEAD pieces
LOOK_S = 3.0  # between two checks for remaining workers, if no result arrives
PATIENCE_S = 600.0  # timeout without workers: a batch system may have to find a place for one
_held: dict[str, tuple[str, Any]] = {}  # kind -> key and what was opened


def open_executor(features: Features, module: str) -> AbstractContextManager[MapPieces]:
    """Open a MapPieces for functions of `module` by `features.executor`.

    Processes are `features.num_jobs`.
    """
    if features.executor.startswith(DASK):
        return dask_map(features.executor.removeprefix(DASK), "features.executor")
    return process_map(module, features.num_jobs or num_cores())


def keep_open(kind: str, key: str, open_it: Callable[[], Any]) -> Any:
    """Return the result of `open_it` for a key, held until another key of its `kind`.

    The previous one is dropped first. The key covers all that the result depends on.
    """
    if _held.get(kind, ("",))[0] != key:
        _held.pop(kind, None)
        _held[kind] = (key, open_it())
    return _held[kind][1]


@contextmanager
def dask_map(address: str, setting: str) -> Iterator[MapPieces]:
    """Yield a MapPieces over the workers of a Dask scheduler.

    They see the same files under the same names. `setting` named the address. Raises AsrtoolError if Dask is not
    installed, no scheduler answers, it has no worker, or one has several threads, since torch's threads and lhotse's
    audio backend belong to a process.
    """
    require("distributed", f"{setting} = dask:{address}", "pip install 'asrtool[dask]', or leave this setting out")
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        what = f"{setting}: no Dask scheduler at {address!r} ({type(error).__name__})"
        raise AsrtoolError(what, "start one with `dask scheduler` and give the address that it prints") from error
    with _quiet("distributed.client"), client:
        threads = [worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
        if set(threads) != {1}:
            found = f"a worker with {max(threads)} threads" if threads else "no worker"
            what = f"{setting}: the scheduler at {address} has {found}, expected workers with one thread"
            raise AsrtoolError(what, f"start them with `dask worker {address} --nworkers N --nthreads 1`")
        yield lambda function, items: _ordered(client, address, len(threads), function, items)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silence a logger that prints a traceback when the scheduler ends."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _ordered(
    client: Any, address: str, num_workers: int, function: Callable[[Any], Any], items: Iterable[Any]
) -> Iterator[Any]:
    """Yield results in order, fetched as soon as they are there.

    A result that a worker still holds is lost with it, and computed again.
    """
    from distributed import as_completed

    coming = numbered(items)
    pieces: dict[Any, Piece] = {}
    done: dict[int, Any] = {}
    finished = as_completed(loop=client.loop, with_results=True, raise_errors=False)
    first, begun = 0, 0
    while True:
        for piece in itertools.islice(coming, first + AHEAD * num_workers - begun):
            future = client.submit(attempt, function, piece, pure=False)
            pieces[future.key] = piece
            finished.add(future)
            begun += 1
        if not pieces:
            return
        _wait(finished, client, address)
        future, result = next(finished)
        piece = pieces.pop(future.key)
        if future.status != "finished":
            raise _error(piece, future)
        done[piece.number] = result
        while first in done:
            yield done.pop(first)
            first += 1


def _wait(finished: Any, client: Any, address: str) -> None:
    """Wait until a piece is done; AsrtoolError after PATIENCE_S without a worker."""
    start = f"start some with `dask worker {address} --nworkers N --nthreads 1`"
    seen_s = looked_s = time.monotonic()
    while not finished.has_ready():
        time.sleep(POLL_S)
        now_s = time.monotonic()
        if now_s < looked_s + LOOK_S:
            continue
        workers = client.scheduler_info(n_workers=1).get("workers")
        if workers or finished.has_ready():  # all are done if the scheduler has ended
            seen_s = now_s
        elif seen_s == looked_s:
            logging.warning(
                "the Dask scheduler at %s has no worker left: %s; they are waited for, %.0f minutes at most",
                address, start, PATIENCE_S / 60,
            )  # fmt: skip
        elif now_s > seen_s + PATIENCE_S:
            what = f"the Dask scheduler at {address} has had no worker for {PATIENCE_S / 60:.0f} minutes"
            raise AsrtoolError(what, f"{start}, then run the same command again: what is finished stays")
        looked_s = now_s


def _error(piece: Piece, future: Any) -> BaseException:
    from distributed import KilledWorker

    if future.status != "error":  # cancelled, as are all of a scheduler that has ended
        hint = "start scheduler and workers again, then run the same command again: what is finished stays"
        return AsrtoolError(f"the Dask scheduler ended before {piece.name} was there", hint)
    error: BaseException = future.exception()
    if isinstance(error, KilledWorker):
        why = "the worker that had it was killed, perhaps for want of memory"
        return given_up(piece, why, error.allowed_failures + 1)
    return error
