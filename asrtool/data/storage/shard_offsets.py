"""Byte ranges of the shards of a set, and reading them, wherever the set is.

`shards.npy` is int64 (shards, 9). A row is a shard in storage order. A file holds consecutive shards and has the
number of the first one in its name. A row has the number of the shard; file, begin and end (bytes) of its list of
utterances; the same of its data; begin and end of its samples, in the file of the same number as the list. A set
without a table is older: each shard has files of its own.
"""

from __future__ import annotations

import itertools
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from asrtool.data.remote.cache import cached_set
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
COLUMNS = 9


@dataclass
class ByteRange:
    """Byte range of an open file, readable even if its name is removed."""

    descriptor: int  # of the file, closed with this; a garbage-collected file object would warn
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


def open_byte_range(path: Path, begin: int = 0, end: int | None = None) -> ByteRange:
    """Open a byte range of `path`, to its end if None.

    If its folder stands for a remote set, the bytes are fetched unless cached. Raises OSError, and AsrtoolError if
    the server does not answer, refuses, or has another file by now.
    """
    cached = cached_set(path.parent)
    with cached.open(path.name, begin, end) if cached else open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if cached:  # the file is the range
            begin, end = 0, size
        end = size if end is None else min(end, size)
        return ByteRange(os.dup(file.fileno()), begin, max(end - begin, 0))


class Span(NamedTuple):
    """Bytes of a file: from `begin` on, up to `end`."""

    file: int  # the number in its name
    begin: int = 0
    end: int | None = None  # of the file


def open_span(directory: Path, name: str, span: Span) -> ByteRange:
    """Open a byte range of the file `name` with its number; as open_byte_range."""
    return open_byte_range(directory / name.format(span.file), span.begin, span.end)


def data_members(byte_range: ByteRange) -> dict[str, tuple[int, int]]:
    """Return the offset in `byte_range` and size of each utterance's data, by name.

    An utterance has two members: its data, and a manifest. Raises ValueError if one is missing, and as tarfile.
    """
    end = byte_range.begin + byte_range.size
    with byte_range.open() as file, tarfile.open(fileobj=file, mode="r:") as tar:
        members = list(itertools.takewhile(lambda member: member.offset < end, tar))
    if len(members) % 2:
        raise ValueError(f"a tar file has {len(members)} members, expected two an utterance")
    return {
        member.name.rpartition(".")[0]: (member.offset_data - byte_range.begin, member.size) for member in members[::2]
    }


class ShardRanges(NamedTuple):
    """Byte ranges of a shard."""

    number: int
    cuts: Span
    data: Span
    samples: Span


class ShardTable:
    """Byte ranges of all shards of a set; the table is mapped and shared."""

    def __init__(self, directory: Path) -> None:
        """Raise AsrtoolError if the table is broken."""
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

    def __getitem__(self, number: int) -> ShardRanges:
        """Return the ranges of shard `number`; AsrtoolError if the table lacks it."""
        if self._rows is None:
            return ShardRanges(number, *[Span(number)] * 3)
        k = int(np.searchsorted(self._rows[:, 0], number))
        if k == len(self._rows) or self._rows[k, 0] != number:
            raise AsrtoolError(f"shard {number:06d} is in index.jsonl but not in {TABLE}", RERUN)
        _, *cuts_and_data, begin, end = self._rows[k].tolist()
        spans = (cuts_and_data[:3], cuts_and_data[3:], [cuts_and_data[0], begin, end])
        return ShardRanges(number, *(Span(*span) for span in spans))


def shard_row(number: int, data_of: int, file: int, spans: Mapping[str, tuple[int, int]]) -> list[int]:
    """Return the row of a shard in the files of number `file`, for shard_table.

    `data_of` is the shard whose data it uses.
    """
    data = next((spans[name] for name in DATA.values() if name in spans), (0, 0))
    return [number, file, *spans[CUTS], data_of, *data, *spans.get(SAMPLES, (0, 0))]


def shard_table(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the table of shards, (shards, 9) int64, of rows in storage order."""
    table = np.array(rows, np.int64).reshape(-1, COLUMNS)
    table[:, 4:7] = table[np.searchsorted(table[:, 0], table[:, 4])][:, [1, 5, 6]]
    return table
