"""What is decided about the utterances of a large corpus, as columns: a number each instead of an object."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from asrtool.corpus.tally import Entry
from local.corpus import UNCERTAIN


@dataclass(frozen=True)
class Columns:
    """The utterances of a corpus in the order of its manifest; recordings and speakers are places in their lists."""

    recordings: list[str]
    speakers: list[str]
    recording: np.ndarray  # int32
    speaker: np.ndarray  # int32
    duration_s: np.ndarray  # float64
    text: np.ndarray  # int64, a hash: among two million texts two that share one are less likely than 1 in a million
    is_doubted: np.ndarray  # by who transcribed it

    def said(self, rows: np.ndarray) -> Iterator[tuple[str, str, float]]:
        """Recording, speaker and seconds of the utterances of the mask `rows`."""
        columns = (column[rows].tolist() for column in (self.recording, self.speaker, self.duration_s))
        for recording, speaker, duration_s in zip(*columns, strict=True):
            yield self.recordings[recording], self.speakers[speaker], duration_s


def read_columns(entries: Iterable[Entry]) -> Columns:
    """The columns of the utterances of a manifest, which are not kept."""
    recordings: dict[str, int] = {}
    speakers: dict[str, int] = {}
    recording, speaker, duration_s, text, is_doubted = array("i"), array("i"), array("d"), array("q"), array("b")
    for entry in entries:
        recording.append(recordings.setdefault(entry["recording_id"], len(recordings)))
        speaker.append(speakers.setdefault(str(entry.get("speaker")), len(speakers)))
        duration_s.append(entry["duration"])
        text.append(hash(entry.get("text") or ""))
        is_doubted.append(bool((entry.get("custom") or {}).get(UNCERTAIN)))
    return Columns(
        list(recordings), list(speakers), np.array(recording), np.array(speaker), np.array(duration_s), np.array(text),
        np.array(is_doubted, dtype=bool),
    )  # fmt: skip


def occurrences(values: np.ndarray) -> np.ndarray:
    """For each value how often it has been there up to that place: 1, 1, 2 for a, b, a."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(values)])
    sizes = np.diff(np.append(first, len(values)))
    numbers = np.empty(len(values), dtype=np.int32)
    numbers[order] = np.arange(len(values)) - np.repeat(first, sizes) + 1
    return numbers
