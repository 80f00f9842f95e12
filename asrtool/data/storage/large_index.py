"""Index of a set that does not fit in memory; lines are read a shard at a time."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from asrtool.data.storage.index import INDEX, RERUN, WINDOW_SHARDS, Utterance, parse_line
from asrtool.errors import AsrtoolError


class ShardTable:
    """Table of the shards of a set, filled in storage order."""

    def __init__(self) -> None:
        self._rows: list[list[int]] = []
        self._num_utterances = self._num_bytes = 0

    def add(self, utterance: Utterance, end: int) -> None:
        """The next one, whose line ends at the byte `end`."""
        if not self._rows or utterance.shard != self._rows[-1][0]:
            self._rows.append([utterance.shard, self._num_utterances, self._num_bytes, 0])
        self._rows[-1][3] += utterance.num_frames
        self._num_utterances += 1
        self._num_bytes = end

    def add_shard(self, number: int, num_frames: int, num_utterances: int, num_bytes: int) -> None:
        """The next one, whose lines take so many bytes."""
        self._rows.append([number, self._num_utterances, self._num_bytes, num_frames])
        self._num_utterances += num_utterances
        self._num_bytes += num_bytes

    def to_array(self) -> np.ndarray:
        """Return (shards + 1, 4), int64: number, first utterance, first byte, frames.

        The last row is the end.
        """
        return np.array([*self._rows, [-1, self._num_utterances, self._num_bytes, 0]], dtype=np.int64)


class ShardIndex(Sequence[Utterance]):
    """Utterances of `directory`/index.jsonl by a table; keeps the last shards' lines."""

    def __init__(self, directory: Path, table: np.ndarray) -> None:
        """Take the `table` of a ShardTable of this file."""
        self._made_of = (directory, table)
        self._path = directory / INDEX
        self.numbers, self.first, self._begin, frames = table.T
        self.num_frames = int(frames.sum())
        self._shard = functools.lru_cache(2 * WINDOW_SHARDS)(self._read_shard)

    def __reduce__(self) -> tuple[type[ShardIndex], tuple[Path, np.ndarray]]:
        """Pickle without the kept lines."""
        return ShardIndex, self._made_of

    def __len__(self) -> int:
        return int(self.first[-1])

    @overload
    def __getitem__(self, i: int) -> Utterance: ...
    @overload
    def __getitem__(self, i: slice) -> list[Utterance]: ...
    def __getitem__(self, i: int | slice) -> Utterance | list[Utterance]:
        """Raises AsrtoolError when the file is not the one that the table was made of."""
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not 0 <= i < len(self):
            raise IndexError(i)
        place = int(np.searchsorted(self.first, i, side="right")) - 1
        return self._shard(place)[i - int(self.first[place])]

    def _read_shard(self, place: int) -> list[Utterance]:
        begin, end = self._begin[place : place + 2].tolist()
        first, behind = self.first[place : place + 2].tolist()
        try:
            with open(self._path, "rb") as file:
                file.seek(begin)
                lines = file.read(end - begin).removesuffix(b"\n").decode().split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise AsrtoolError(f"{self._path}: no readable list of utterances", RERUN) from error
        if len(lines) != behind - first:
            raise AsrtoolError(f"{self._path}: changed while it was in use", "run the same command again")
        return [parse_line(line, f"{self._path}:{number}") for number, line in enumerate(lines, first + 1)]
