"""Bytes of files on servers, asked for again where a server fails for a while.

What a person has to know is an AsrtoolError: a server that is down, or refuses. What concerns one file alone is an
OSError: that it is missing, or that less comes than the server says.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from asrtool.data.remote.server import Changed, CutShort, Ended, Failed, Missing, Server, Version
from asrtool.errors import AsrtoolError

WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0)  # before a request is made again; with the first one these are six
Result = TypeVar("Result")


def fetch(
    url: str, write: Callable[[bytes], Any], begin: int = 0, end: int | None = None, known: Version | None = None
) -> Version:
    """Fetch a byte range and pass it to `write`, resuming after failures.

    Raises Missing, CutShort, Changed if the version is not `known` or changes meanwhile, and AsrtoolError if the
    server does not answer or refuses.
    """
    done, version, tries = begin, known, iter(WAITS_S)
    while True:
        before = done
        try:
            with contextlib.closing(server_of(url).get(url, done, end)) as answer:
                version = version or answer.version
                if answer.version != version:
                    raise Changed(f"{url}: is {answer.version}, was {version}")
                behind = version.size if end is None else min(end, version.size)
                for block in answer.blocks:
                    write(block)
                    done += len(block)
            if done >= behind:
                return version
            raise Ended(f"{done - before} of {behind - before} bytes come")
        except Failed as error:
            tries = iter(WAITS_S) if done > before else tries
            _wait(url, tries, error)


def read(url: str, begin: int = 0, end: int | None = None) -> tuple[Version, bytes]:
    """Read a byte range into memory; as `fetch`."""
    pieces: list[bytes] = []
    version = fetch(url, pieces.append, begin, end)
    return version, b"".join(pieces)


def version_of(url: str) -> Version | None:
    """Return the version of a file, or None; AsrtoolError as `fetch`."""
    try:
        return _repeated(url, lambda server: server.head(url))
    except Missing:
        return None


def names_in(url: str) -> list[str] | None:
    """Return sorted file names in a folder, None if unknown; AsrtoolError as `fetch`."""
    return _repeated(url, lambda server: server.names(url))


def _repeated(url: str, ask: Callable[[Server], Result]) -> Result:
    tries = iter(WAITS_S)
    while True:
        try:
            return ask(server_of(url))
        except Failed as error:
            _wait(url, tries, error)


def _wait(url: str, tries: Iterator[float], error: Failed) -> None:
    """Wait before the next try; after the last, raise AsrtoolError or CutShort."""
    wait_s = next(tries, None)
    if wait_s is not None:
        logging.debug("%s: %s; again in %g s", url, error, wait_s)
        time.sleep(wait_s)
        return
    if isinstance(error, Ended):
        raise CutShort(f"{url}: {error}") from error
    raise AsrtoolError(
        f"{url}: {error}, {len(WAITS_S) + 1} times within {sum(WAITS_S):g} s",
        "see whether the server runs and can be reached from here, then run the same command again",
    ) from error


def server_of(url: str) -> Server:
    """Connections are not for two processes."""
    return _server(url.partition(":")[0] == "s3", os.getpid())


@functools.lru_cache(maxsize=2)
def _server(is_s3: bool, _process: int) -> Server:
    if is_s3:
        from asrtool.data.remote.s3_server import S3Server

        return S3Server()
    from asrtool.data.remote.http_server import HttpServer

    return HttpServer()
