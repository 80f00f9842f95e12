"""Byte ranges of the shards of a set: `shards.npy`, int64 (shards, 9).

A row is a shard in storage order. A file holds consecutive shards and has the number of the first one in its name. A
row has the number of the shard; file, begin and end (bytes) of its list of utterances; the same of its data; begin
and end of its samples, in the file of the same number as the list. A set without a table is older: each shard has
files of its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asrtool.data.storage.byte_range import Extent, open_extent
from asrtool.data.storage.index import RERUN
from asrtool.errors import AsrtoolError

TABLE = "shards.npy"
# Names of files, by the number of the first shard in them.
CUTS = "cuts.{:06d}.jsonl.gz"  # lists of utterances, as lhotse has them: a member of gzip for each shard
LILCOM = "feats.{:06d}.lca"
SHAR = "features.{:06d}.tar"
SAMPLES = "samples.{:06d}.s16"
FLAC = "recording.{:06d}.tar"
DATA = {"lilcom": LILCOM, "shar": SHAR, "flac": FLAC}  # by storage
TO_THE_END = -1
COLUMNS = 9


class Span(NamedTuple):
    """Bytes of a file: from `begin` on, up to `end`."""

    file: int  # the number in its name
    begin: int = 0
    end: int | None = None  # of the file


class Place(NamedTuple):
    """Byte ranges of a shard."""

    number: int
    cuts: Span
    data: Span
    samples: Span

    @classmethod
    def of_own_files(cls, number: int) -> Place:
        """Return the ranges of a shard with files of its own."""
        return cls(number, *[Span(number)] * 3)


class Places:
    """Byte ranges of all shards of a set; the table is mapped and shared."""

    def __init__(self, directory: Path) -> None:
        """Raises AsrtoolError where the table is broken."""
        path = Path(directory) / TABLE
        self._rows: np.ndarray | None = None
        try:
            self._rows = np.load(path, mmap_mode="r", allow_pickle=False)
            if self._rows.ndim != 2 or self._rows.shape[1] != COLUMNS:
                raise ValueError(f"an array of shape {self._rows.shape}, expected {COLUMNS} columns")
        except FileNotFoundError:
            return
        except (OSError, ValueError, EOFError) as error:
            raise AsrtoolError(f"{path}: no readable table of shards: {error}", RERUN) from error

    def __len__(self) -> int:
        """Return the number of shards; 0 if unknown."""
        return 0 if self._rows is None else len(self._rows)

    def __getitem__(self, number: int) -> Place:
        """Return the ranges of shard `number`; AsrtoolError if the table lacks it."""
        if self._rows is None:
            return Place.of_own_files(number)
        k = int(np.searchsorted(self._rows[:, 0], number))
        if k == len(self._rows) or self._rows[k, 0] != number:
            raise AsrtoolError(f"shard {number:06d} is in index.jsonl but not in {TABLE}", RERUN)
        _, *cuts_and_data, begin, end = self._rows[k].tolist()
        spans = (cuts_and_data[:3], cuts_and_data[3:], [cuts_and_data[0], begin, end])
        return Place(number, *[Span(file, begin, None if end == TO_THE_END else end) for file, begin, end in spans])


class PlaceTable:
    """Written as shards come in storage order."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def add(self, number: int, data_of: int, file: int, spans: Mapping[str, tuple[int, int]]) -> None:
        """Add a shard in the files of number `file`.

        `data_of` is the shard whose data it uses.
        """
        data = next((spans[name] for name in DATA.values() if name in spans), (0, 0))
        samples = spans.get(SAMPLES, (0, 0))
        self._numbers.extend([number, file, *spans[CUTS], data_of, *data, *samples])

    def to_array(self) -> np.ndarray:
        """(shards, 9), int64."""
        rows = np.frombuffer(self._numbers, np.int64).reshape(-1, COLUMNS).copy()
        rows[:, 4:7] = rows[np.searchsorted(rows[:, 0], rows[:, 4])][:, [1, 5, 6]]
        return rows


def places_of(directory: Path, numbers: Sequence[int]) -> np.ndarray:
    """Return the table of a set, or one of single-shard files for `numbers`."""
    path = Path(directory) / TABLE
    if path.exists():
        table: np.ndarray = np.load(path, allow_pickle=False)
        return table
    own = [0, TO_THE_END]
    return np.array([[n, n, *own, n, *own, *own] for n in numbers], np.int64).reshape(-1, COLUMNS)


def open_span(directory: Path, name: str, span: Span) -> Extent:
    """Open a byte range of the file `name`, {} being its number. Raises OSError."""
    return open_extent(directory / name.format(span.file), span.begin, span.end)
