"""Positions of utterances in their recordings, as columns of 24 bytes each."""

from __future__ import annotations

import bisect
import itertools
from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.data.manifests.manifest import parse_line, read_again, read_batches
from asrtool.data.manifests.validator import Entry


@dataclass(frozen=True, slots=True)
class Span:
    """Position of an utterance in its recording."""

    start_s: float
    duration_s: float
    channel: int

    @property
    def end_s(self) -> float:
        """End in seconds, rounded as in lhotse."""
        return round(self.start_s + self.duration_s, 8)


@dataclass(frozen=True, slots=True)
class Sounds:
    """Utterances of one recording, as processes get them."""

    of_set: str
    recording: Entry
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class Said:
    """Text and origin of an utterance."""

    of_set: str
    id: str
    text: str
    corpus: str


@dataclass(frozen=True)
class Runs:
    """Numbers of utterances that follow each other, and are worked on together."""

    edges: np.ndarray  # first number of each run, and behind the last one

    @classmethod
    def of(cls, values: np.ndarray) -> Runs:
        """Return runs of equal values, which are not below 0."""
        return cls(np.flatnonzero(np.diff(values, prepend=-1, append=-1)))

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __iter__(self) -> Iterator[range]:
        return (range(int(first), int(last)) for first, last in itertools.pairwise(self.edges))


@dataclass(frozen=True)
class Utterances:
    """Utterances of sets in manifest order; a number identifies each."""

    manifests: Path
    sets: Sequence[str]
    begins: list[int]  # number of the first one of each set, and behind the last one
    recordings: list[Entry]  # of all sets
    recording: np.ndarray  # int32, its place among them
    channel: np.ndarray  # int32
    start_s: np.ndarray  # float64
    duration_s: np.ndarray  # float64

    @classmethod
    def read(cls, manifests: Path, sets: Sequence[str]) -> Utterances:
        """Read `manifests`/SET line by line.

        Raises AsrtoolError for a missing, half-written or corrupt one.
        """
        recordings: list[Entry] = []
        begins = [0]
        recording, channel, start_s, duration_s = array("i"), array("i"), array("d"), array("d")
        for name in sets:
            entries, batches = read_batches(manifests / name)
            places = {entry["id"]: place for place, entry in enumerate(entries, len(recordings))}
            recordings += entries
            for some in batches:
                recording.extend([places[entry["recording_id"]] for entry in some])
                channel.extend([entry["channel"] for entry in some])
                start_s.extend([entry["start"] for entry in some])
                duration_s.extend([entry["duration"] for entry in some])
            begins.append(len(recording))
        columns = (np.asarray(column) for column in (recording, channel, start_s, duration_s))
        return cls(manifests, sets, begins, recordings, *columns)

    def __len__(self) -> int:
        return self.begins[-1]

    def hours(self, sets: Collection[str]) -> float:
        """Return the hours of speech in `sets`."""
        places = [place for place, name in enumerate(self.sets) if name in sets]
        return sum(float(self.duration_s[self.begins[i] : self.begins[i + 1]].sum()) for i in places) / 3600

    def by_recording(self) -> Runs:
        """Return runs of utterances of one recording."""
        return Runs.of(self.recording)

    def sounds(self, numbers: range) -> Sounds:
        """Return the audio positions of utterances of one recording."""
        rows = slice(numbers.start, numbers.stop)
        columns = (column[rows].tolist() for column in (self.start_s, self.duration_s, self.channel))
        recording = self.recordings[self.recording[numbers.start]]
        return Sounds(self._set_of(numbers.start), recording, [Span(*values) for values in zip(*columns, strict=True)])

    def said(self, numbers: Collection[int]) -> dict[int, Said]:
        """Read texts of utterances by number from the manifests."""
        found: dict[int, Said] = {}
        wanted = set(numbers)
        for place, name in enumerate(self.sets):
            of_set = wanted.intersection(range(self.begins[place], self.begins[place + 1]))
            lines = read_again(self.manifests / name) if of_set else ()
            for number, line in enumerate(lines, self.begins[place]):
                if number in of_set:
                    entry = parse_line(line)
                    corpus = (entry.get("custom") or {}).get("corpus", "")
                    found[number] = Said(name, entry["id"], entry.get("text") or "", corpus)
        return found

    def _set_of(self, number: int) -> str:
        return self.sets[bisect.bisect_right(self.begins, number) - 1]
