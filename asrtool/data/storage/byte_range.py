"""Bytes of a file of a feature set: what readers open, wherever the set lies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from asrtool.data.remote.cache import cached_set


@dataclass
class Extent:
    """Byte range of an open file, readable even if its name is removed."""

    descriptor: int  # of the file, which is closed with this; a file object among garbage would warn of itself
    begin: int  # in the file
    size: int

    def __del__(self) -> None:
        os.close(self.descriptor)

    def read(self, begin: int = 0, size: int | None = None) -> bytes:
        """Read `size` bytes, or all, from `begin` of the range; fewer at its end.

        Threads may read at the same time.
        """
        left = self.size - begin if size is None else min(size, self.size - begin)
        place, pieces = self.begin + begin, []
        while left > 0 and (piece := os.pread(self.descriptor, left, place)):
            pieces.append(piece)
            left, place = left - len(piece), place + len(piece)
        return b"".join(pieces)

    def open(self) -> BinaryIO:
        """Open the whole file at the range's start; for one thread at a time."""
        file = os.fdopen(os.dup(self.descriptor), "rb")
        file.seek(self.begin)
        return file


def open_extent(path: Path, begin: int = 0, end: int | None = None) -> Extent:
    """Open a byte range of `path`, to its end if None.

    If its folder stands for a remote set, the bytes are fetched unless cached. Raises OSError, and AsrtoolError if
    the server does not answer, refuses, or has another file by now.
    """
    if cached := cached_set(path.parent):
        with cached.open(path.name, begin, end) as file:
            return _extent(file, 0, None)
    with open(path, "rb") as file:
        return _extent(file, begin, end)


def _extent(file: BinaryIO, begin: int, end: int | None) -> Extent:
    size = os.fstat(file.fileno()).st_size
    end = size if end is None else min(end, size)
    return Extent(os.dup(file.fileno()), begin, max(end - begin, 0))
