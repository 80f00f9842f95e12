"""Columns of a large corpus's utterances, a number each instead of an object."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass

import numpy as np

from asrtool.data.manifests.validator import Entry, Tally
from asrtool.local.corpus import UNCERTAIN


@dataclass(frozen=True)
class Columns:
    """Utterances in manifest order; recordings and speakers are list positions."""

    recordings: list[str]
    speakers: list[str | None]
    recording: np.ndarray  # int32
    speaker: np.ndarray  # int32
    duration_s: np.ndarray  # float64
    id: np.ndarray  # int64, a hash
    text: np.ndarray  # int64, a hash: among two million texts two that share one are less likely than 1 in a million
    num_words: np.ndarray  # int32
    is_doubted: np.ndarray  # by who transcribed it
    is_plain: np.ndarray  # without custom fields
    lines: bytearray  # of text, one an utterance that has some
    num_bytes: np.ndarray  # int32, of its line

    def speech_s(self, rows: np.ndarray) -> dict[str, float]:
        """Return seconds of speech by recording, of the utterances of the mask `rows`."""
        total = np.bincount(self.recording[rows], self.duration_s[rows], len(self.recordings))
        return {self.recordings[place]: float(total[place]) for place in np.unique(self.recording[rows]).tolist()}

    def num_utterances(self, rows: np.ndarray) -> Counter[tuple[str, str | None]]:
        """Count the utterances of the mask `rows` by recording and speaker."""
        num = len(self.speakers)
        pairs, numbers = np.unique(self.recording[rows].astype(np.int64) * num + self.speaker[rows], return_counts=True)
        names = [(self.recordings[pair // num], self.speakers[pair % num]) for pair in pairs.tolist()]
        return Counter(dict(zip(names, numbers.tolist(), strict=True)))

    def is_of(self, speakers: Container[str | None]) -> np.ndarray:
        """Return a mask of utterances of `speakers`."""
        return np.isin(self.speaker, [place for place, name in enumerate(self.speakers) if name in speakers])

    def said(self, rows: np.ndarray) -> list[memoryview]:
        """Return the text of rows in the mask `rows`; adjacent lines are one piece."""
        begin = np.concatenate(([0], np.cumsum(self.num_bytes, dtype=np.int64)))
        edges = begin[np.flatnonzero(np.diff(rows, prepend=False, append=False))]
        view = memoryview(self.lines)
        return [view[first:last] for first, last in edges.reshape(-1, 2).tolist() if last > first]

    def count(self, rows: np.ndarray, tally: Tally) -> None:
        """Count the utterances of the mask `rows` in `tally`."""
        tally.add_checked(
            (self.recordings[place] for place in np.unique(self.recording[rows]).tolist()),
            (self.speakers[place] for place in np.unique(self.speaker[rows]).tolist()),
            self.id[rows].tobytes(),
            int(self.num_words[rows].sum()),
            float(self.duration_s[rows].sum()),
        )

    def runs(self) -> list[tuple[int, int]]:
        """Return (first row, last row + 1) of each run of rows in one recording."""
        edges = np.flatnonzero(np.diff(self.recording, prepend=-1, append=-1)).tolist()
        return list(itertools.pairwise(edges))


def read_columns(batches: Iterable[list[Entry]]) -> Columns:
    """Read the utterances of a manifest as columns; the entries are not kept."""
    recordings: dict[str, int] = {}
    speakers: dict[str | None, int] = {}
    lines = bytearray()
    recording, speaker, duration_s, id_, text = array("i"), array("i"), array("d"), array("q"), array("q")
    num_words, is_doubted, is_plain, num_bytes = array("i"), array("b"), array("b"), array("i")
    for some in batches:
        texts = [entry.get("text") or "" for entry in some]
        said = [f"{text}\n".encode() if text else b"" for text in texts]
        lines += b"".join(said)
        recording.extend([recordings.setdefault(entry["recording_id"], len(recordings)) for entry in some])
        speaker.extend([speakers.setdefault(entry.get("speaker"), len(speakers)) for entry in some])
        duration_s.extend([entry["duration"] for entry in some])
        id_.extend([hash(entry["id"]) for entry in some])
        text.extend(map(hash, texts))
        num_words.extend([len(text.split()) for text in texts])
        is_doubted.extend([bool((entry.get("custom") or {}).get(UNCERTAIN)) for entry in some])
        is_plain.extend(["custom" not in entry for entry in some])
        num_bytes.extend(map(len, said))
    return Columns(
        list(recordings), list(speakers), np.array(recording), np.array(speaker), np.array(duration_s), np.array(id_),
        np.array(text), np.array(num_words), np.array(is_doubted, dtype=bool), np.array(is_plain, dtype=bool), lines,
        np.array(num_bytes),
    )  # fmt: skip


def occurrences(values: np.ndarray) -> np.ndarray:
    """Return the running count of each value: 1, 1, 2 for a, b, a."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(values)])
    sizes = np.diff(np.append(first, len(values)))
    numbers = np.empty(len(values), dtype=np.int32)
    numbers[order] = np.arange(len(values)) - np.repeat(first, sizes) + 1
    return numbers
