"""One process per folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from asrtool.errors import AsrtoolError


@contextlib.contextmanager
def locked(folder: Path, what: str, otherwise: str) -> Iterator[None]:
    """Hold ``{folder}/.lock``, which the system frees when this process ends, however it ends.

    Raises AsrtoolError naming the process that holds it; `what` is running there, and one may wait or do `otherwise`.
    Where the file system knows no locks, none is held.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise AsrtoolError(
                f"{folder}: another {what} is running there (process {file.read().strip() or 'unknown'})",
                f"wait for it, or {otherwise}",
            ) from error
        except OSError:  # as of a cluster that was mounted without
            pass
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
