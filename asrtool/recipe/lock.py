"""One run at a time in a work directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from asrtool.errors import AsrtoolError


@contextlib.contextmanager
def locked(work: Path) -> Iterator[None]:
    """Hold ``{work}/.lock``, which the system frees when this process ends, however it ends.

    Raises AsrtoolError naming the process that holds it.
    """
    work.mkdir(parents=True, exist_ok=True)
    with open(work / ".lock", "a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise AsrtoolError(
                f"{work}: another run is at work there (process {file.read().strip() or 'unknown'})",
                "wait for it, or choose another place with --work",
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
