"""A table of a Kaldi data directory, a line an id.

A long one is read where it lies: of a line its place in the file and a hash of its id are kept, 20 bytes. Two ids are
taken for one where their hashes of 64 bits agree; who reads a line again has the ids to compare.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.local.layouts.finish import originals_of

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Table:
    """Lines of a file as rows from 0; `look` is called with each id and value.

    Raises AsrtoolError for a missing file, a line without value unless `allow_empty` (which also accepts bytes that
    are not UTF-8), and for an id given twice.
    """

    def __init__(self, path: Path, allow_empty: bool = False, look: Callable[[str, str], None] | None = None) -> None:
        self.path, self._allow_empty = path, allow_empty
        begins, ids, named, originals = array("q", [0]), array("q"), array("q"), array("q")
        for id_, value, end in _read_lines(path, allow_empty):
            if names := originals_of(id_):
                named.append(len(ids))
                originals.extend(map(hash, names))
            begins.append(end)
            ids.append(hash(id_))
            if look:
                look(id_, value)
        self._begins, self.ids = np.asarray(begins), np.asarray(ids)  # int64; of ids hashes
        self._order = np.argsort(self.ids, kind="stable").astype(np.int32)
        self._check_unique()
        is_copy = (self.find(np.asarray(originals)) >= 0).reshape(-1, 2).any(axis=1)
        self.is_copy = np.zeros(len(self.ids), dtype=bool)  # at another speed, of a row that is there
        self.is_copy[np.asarray(named)[is_copy]] = True

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Return the rows of `ids`, hashes as int64; -1 if missing."""
        if not len(self.ids):
            return np.full(len(ids), -1)
        places = np.searchsorted(self.ids, ids, sorter=self._order)
        rows = self._order[np.minimum(places, len(self.ids) - 1)].astype(np.int64)
        rows[self.ids[rows] != ids] = -1
        return rows

    def read(self, rows: np.ndarray) -> list[tuple[str, str]]:
        """Return ids and values of `rows` in order; adjacent lines are read at once."""
        lines: list[tuple[str, str]] = []
        edges = np.flatnonzero(np.diff(rows, prepend=-2, append=-2) != 1).tolist()
        with self.path.open("rb") as file:
            for first, last in itertools.pairwise(edges):
                begin, end = self._begins[rows[first]], self._begins[rows[last - 1] + 1]
                file.seek(begin)
                some = file.read(end - begin).split(b"\n")[: last - first]
                lines += [_fields(line, self._allow_empty) or ("", "") for line in some]
        return lines

    def _check_unique(self) -> None:
        ordered = self.ids[self._order]
        suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        if suspects:
            _unique(self.path, self._allow_empty, suspects)


def read_table(path: Path) -> dict[str, str]:
    """Return the values of a short table by id; raises AsrtoolError as `Table` does."""
    return _unique(path)


def _unique(path: Path, allow_empty: bool = False, of_hashes: Container[int] | None = None) -> dict[str, str]:
    """Return values by id, of all lines or of lines with id hashes in `of_hashes`."""
    table: dict[str, str] = {}
    for number, (id_, value, _) in enumerate(_read_lines(path, allow_empty), start=1):
        if id_ in table:
            raise AsrtoolError(f"{path}, line {number}: {id_} was there before", "make the ids unique")
        if of_hashes is None or hash(id_) in of_hashes:
            table[id_] = value
    return table


def _read_lines(path: Path, allow_empty: bool) -> Iterator[tuple[str, str, int]]:
    """Yield id and value of each line, and the offset of the byte after it."""
    if not path.is_file():
        raise AsrtoolError(f"{path}: missing, expected a Kaldi data directory", "it needs wav.scp and text")
    end = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            end += len(line)
            try:
                fields = _fields(line, allow_empty)
            except UnicodeDecodeError as error:
                raise AsrtoolError(
                    f"{path}, line {number}: byte 0x{error.object[error.start]:02x} is not UTF-8",
                    "convert it, for example with iconv",
                ) from None
            if fields is None:
                found = line.decode("utf-8", "replace").rstrip("\r\n")
                raise AsrtoolError(f"{path}, line {number}: {found!r}, expected an id and a value", "fix the line")
            yield *fields, end


def _fields(line: bytes, allow_empty: bool) -> tuple[str, str] | None:
    """Split a line at blanks or a tab; None if a required field is missing."""
    fields = line.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace" if allow_empty else "strict").split(None, 1)
    if len(fields) == 2:
        return fields[0], fields[1].strip()
    return (fields[0], "") if fields and allow_empty else None


@dataclass(frozen=True)
class Places:
    """A row for each utterance; its recording is a place in `names`."""

    names: list[str]
    recording: np.ndarray  # int32
    start_s: np.ndarray  # float64
    end_s: np.ndarray  # float64; below 0 for the end of the recording
    ids: np.ndarray  # int64, hashes
    is_copy: np.ndarray  # at another speed
    table: Table | None = None  # with their lines; without it an utterance is called as its recording

    def wanted(self) -> set[str]:
        """Return the recordings of utterances that are not speed copies."""
        return {self.names[place] for place in np.unique(self.recording[~self.is_copy]).tolist()}

    def ending(self, durations_s: Mapping[str, float]) -> Places:
        """Return it with numeric ends of recordings; NaN for those without duration."""
        lengths_s = np.array([durations_s.get(name, math.nan) for name in self.names])[self.recording]
        end_s = np.where((self.end_s < 0) | np.isnan(lengths_s), lengths_s, self.end_s)
        return Places(self.names, self.recording, self.start_s, end_s, self.ids, self.is_copy, self.table)

    def read_ids(self, rows: np.ndarray) -> list[str]:
        """Return the ids of `rows`."""
        if self.table:
            return [id_ for id_, _ in self.table.read(rows)]
        return [self.names[place] for place in self.recording[rows].tolist()]

    def read_names(self, rows: np.ndarray) -> tuple[list[str], list[str]]:
        """Return the ids of `rows` and the ids of their recordings."""
        return self.read_ids(rows), [self.names[place] for place in self.recording[rows].tolist()]


def read_segments(path: Path) -> Places:
    """Read the file segments; AsrtoolError as `Table`, and for malformed values."""
    places: dict[str, int] = {}
    recording, start_s, end_s = array("i"), array("d"), array("d")

    def look(id_: str, value: str) -> None:
        try:
            name, *times = value.split()
            start, end = map(float, times)
            if not (math.isfinite(start) and math.isfinite(end)):
                raise ValueError
        except ValueError:
            raise AsrtoolError(
                f"{path}: {id_} {value!r}, expected recording, start and end in seconds", "fix the line"
            ) from None
        recording.append(places.setdefault(name, len(places)))
        start_s.append(start)
        end_s.append(end)

    table = Table(path, look=look)
    of_recording, starts_s, ends_s = np.asarray(recording), np.asarray(start_s), np.asarray(end_s)
    return Places(list(places), of_recording, starts_s, ends_s, table.ids, table.is_copy, table)


def whole_files(names: list[str]) -> Places:
    """Return places in which each recording is one utterance with the same id."""
    num = len(names)
    ids = np.array([hash(name) for name in names], dtype=np.int64)
    is_copy = np.zeros(num, dtype=bool)
    return Places(names, np.arange(num, dtype=np.int32), np.zeros(num), np.full(num, -1.0), ids, is_copy)
