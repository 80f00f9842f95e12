"""Arrays on disk that need not fit in memory, and operations on them.

A row is a position in a column. Every function works on blocks of rows, and holds a few blocks at a time.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from asrtool.files import disk_full
from asrtool.lang.ngram.model import Ints

Array = NDArray[Any]
BYTES_A_ROW = 200  # twice what the greediest step was measured to hold for each row of its block


class Column:
    """Array in an unnamed temporary file, which is freed when the process ends."""

    def __init__(self, folder: Path, dtype: DTypeLike) -> None:
        """Create an empty column in `folder`; AsrtoolError if no file can be made."""
        self._folder = folder
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._len = 0
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise disk_full(folder, error) from error
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return self._len

    def __getitem__(self, rows: slice) -> Array:
        """The values of the rows `rows`, as far as there are such; the step is 1."""
        start, stop, _ = rows.indices(self._len)
        values = np.empty(max(stop - start, 0), self._dtype)
        if len(values):
            self._file.seek(start * self._dtype.itemsize)
            left = values.data.cast("B")
            while left:
                left = left[self._file.readinto(left) :]
        return values

    def append(self, values: Array) -> None:
        """Add rows behind the last one. Raises AsrtoolError when the disk is full."""
        self.put(self._len, values)

    def put(self, start: int, values: Array) -> None:
        """Write `values` from row `start` on. Raises AsrtoolError when the disk is full."""
        if not len(values):
            return
        left = np.ascontiguousarray(values, self._dtype).data.cast("B")
        self._file.seek(start * self._dtype.itemsize)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise disk_full(self._folder, error) from error
        self._len = max(self._len, start + len(values))

    def blocks(self, size: int) -> Iterator[tuple[int, Array]]:
        """(first row, values) of every `size` rows."""
        for start in range(0, self._len, size):
            yield start, self[start : start + size]


@dataclass(frozen=True)
class Scratch:
    """Folder of columns, and the number of rows in a block."""

    folder: Path | None = None
    block: int = 1_000_000

    @classmethod
    def of_size(cls, folder: Path, memory_bytes: float) -> Scratch:
        """Return a scratch in `folder` whose blocks stay below `memory_bytes` together."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, max(int(memory_bytes / BYTES_A_ROW), 1))

    def column(self, dtype: DTypeLike = np.int64, values: Array | None = None) -> Column:
        """A column with `values`, if any."""
        column = Column(self.folder or Path(tempfile.gettempdir()), dtype)
        if values is not None:
            column.append(values)
        return column


def gather(values: Column, rows: Ints, block: int) -> Array:
    """`values` at `rows`, which may be in any order; best where they lie together."""
    if not len(rows):
        return values[:0]
    low, high = int(rows.min()), int(rows.max())
    if high - low < block:
        found: Array = values[low : high + 1][rows - low]
        return found
    found = np.empty(len(rows), values[:0].dtype)
    for start in range(low, high + 1, block):
        part = values[start : start + block]
        here = (rows >= start) & (rows < start + len(part))
        found[here] = part[rows[here] - start]
    return found


def tally(rows: Column, start: int, stop: int, block: int) -> Ints:
    """Count how often each row from `start` to `stop` occurs in `rows`."""
    times = np.zeros(stop - start, np.int64)
    for _, part in rows.blocks(block):
        times += np.bincount(part[(part >= start) & (part < stop)] - start, minlength=stop - start)
    return times


def find(keys: Column, wanted: Ints, block: int) -> Ints:
    """The row of each of `wanted` in `keys`, which rise; -1 where it is missing."""
    rows = np.full(len(wanted), -1)
    for start, known in keys.blocks(block):
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        rows = np.where(known[at] == wanted, start + at, rows)
    return rows


class Merged(NamedTuple):
    """Sorted unique keys, the rows of the runs, and the position in `keys` of each."""

    keys: Ints
    parts: list[tuple[slice, Ints]]


def merge(keys: Column, bounds: Sequence[int], block: int) -> Iterator[Merged]:
    """Merge the runs of `keys`: run i, rows ``bounds[i]`` to ``bounds[i + 1]``, rises."""
    at = list(bounds[:-1])
    per_run = max(block // len(at), 1)
    while any(start < end for start, end in zip(at, bounds[1:], strict=True)):
        heads = [keys[start : min(start + per_run, end)] for start, end in zip(at, bounds[1:], strict=True)]
        # Beyond the end of a head that is not the rest of its run, smaller keys may follow.
        cut = [head[-1] for head, start, end in zip(heads, at, bounds[1:], strict=True) if start + len(head) < end]
        if cut:
            heads = [head[: np.searchsorted(head, min(cut), side="right")] for head in heads]
        merged = np.sort(np.concatenate(heads))  # np.unique hashes, which is many times slower
        merged = merged[np.diff(merged, prepend=merged[0] - 1) > 0]
        parts = [slice(start, start + len(head)) for start, head in zip(at, heads, strict=True)]
        yield Merged(merged, [(part, np.searchsorted(merged, head)) for part, head in zip(parts, heads, strict=True)])
        at = [part.stop for part in parts]
