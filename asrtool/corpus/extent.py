"""Bytes of a file of a feature set: what readers open, wherever the set lies."""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass
class Extent:
    """Bytes of a file that is open: they stay readable where its name goes meanwhile, as in a cache."""

    file: BinaryIO
    begin: int  # in the file
    size: int

    def __post_init__(self) -> None:
        weakref.finalize(self, self.file.close)  # also where this and the file are garbage of one cycle

    def read(self, begin: int = 0, size: int | None = None) -> bytes:
        """`size` bytes from `begin` on, counted from the first one of these; all to the end without a size.

        Threads may read at the same time. Fewer come back only where there are fewer.
        """
        left = self.size - begin if size is None else min(size, self.size - begin)
        place, pieces = self.begin + begin, []
        while left > 0 and (piece := os.pread(self.file.fileno(), left, place)):
            pieces.append(piece)
            left, place = left - len(piece), place + len(piece)
        return b"".join(pieces)


def open_extent(path: Path, begin: int = 0, end: int | None = None) -> Extent:
    """The bytes from `begin` to before `end` of `path`, all to its end where that is None. Raises OSError."""
    return extent_of(open(path, "rb"), begin, end)


def extent_of(file: BinaryIO, begin: int = 0, end: int | None = None) -> Extent:
    """Of a file that is open; fewer bytes where the file ends before."""
    size = os.fstat(file.fileno()).st_size
    end = size if end is None else min(end, size)
    return Extent(file, begin, max(end - begin, 0))
