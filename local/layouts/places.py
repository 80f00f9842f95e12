"""Where the utterances of a Kaldi data directory are, as columns of numbers: 20 bytes each beside a Table's."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.local.layouts.table import Table


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
        """The recordings of what is no copy."""
        return {self.names[place] for place in np.unique(self.recording[~self.is_copy]).tolist()}

    def ending(self, durations_s: Mapping[str, float]) -> Places:
        """The same, with the end of a recording as a number; of one that is not in `durations_s` it is nan."""
        lengths_s = np.array([durations_s.get(name, math.nan) for name in self.names])[self.recording]
        end_s = np.where((self.end_s < 0) | np.isnan(lengths_s), lengths_s, self.end_s)
        return Places(self.names, self.recording, self.start_s, end_s, self.ids, self.is_copy, self.table)

    def read_ids(self, rows: np.ndarray) -> list[str]:
        """The ids of `rows`."""
        if self.table:
            return [id_ for id_, _ in self.table.read(rows)]
        return [self.names[place] for place in self.recording[rows].tolist()]


def read_segments(path: Path) -> Places:
    """Of the file segments. Raises AsrtoolError as `Table`, and for what is not recording, start and end."""
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
    """An utterance a recording, which is called like it."""
    num = len(names)
    ids = np.array([hash(name) for name in names], dtype=np.int64)
    is_copy = np.zeros(num, dtype=bool)
    return Places(names, np.arange(num, dtype=np.int32), np.zeros(num), np.full(num, -1.0), ids, is_copy)
