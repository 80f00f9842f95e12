"""Columns of a corpus's utterances, and the decision on each in a split.

Of a large corpus a number is kept of an utterance instead of an object.
"""

from __future__ import annotations

import enum
import heapq
import itertools
from array import array
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from asrtool.data.manifests.manifest import Drop, format_line, parse_line, read_again, read_batches
from asrtool.data.manifests.validator import Entry, Tally
from asrtool.local.corpus import UNCERTAIN
from asrtool.settings.data import Data


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


class Fate(enum.IntEnum):
    """Decision on an utterance: the first that applies."""

    LONG = 0  # to be cut
    UNFIT = 1
    DEV = 2
    KNOWN = 3  # by a speaker of dev
    DOUBTED = 4
    REPEATED = 5
    PLAIN = 6  # trained on, and its line is to be written as it is, with the corpus behind
    TRAINED = 7


@dataclass
class Part:
    """Corpus in training and dev; arrays have a value an utterance in manifest order."""

    name: str
    folder: Path
    recordings: list[Entry]
    columns: Columns
    is_fit: np.ndarray  # neither too short nor too long
    is_dev: np.ndarray  # in a conversation that is held out
    is_known: np.ndarray  # in another one, by a speaker of dev
    number: np.ndarray  # in training, of those with the same text; 0 for what is not trained on
    fate: np.ndarray
    dev: list[Entry] = field(default_factory=list)
    unfit: list[Drop] = field(default_factory=list)
    known: list[Drop] = field(default_factory=list)
    doubted: list[Drop] = field(default_factory=list)
    repeated: list[Drop] = field(default_factory=list)
    long: list[Entry] = field(default_factory=list)  # to be cut

    @property
    def is_training(self) -> np.ndarray:
        """Mask of utterances in the training text, trained on or not."""
        return ~(self.is_dev | self.is_known)

    @property
    def is_trained(self) -> np.ndarray:
        return self.fate >= Fate.PLAIN

    def said(self) -> list[memoryview]:
        """Return the training text; too short or too long utterances come last."""
        return self.columns.said(self.is_training & self.is_fit) + self.columns.said(self.is_training & ~self.is_fit)


def read_part(folder: Path, name: str, data: Data) -> Part:
    """Read a corpus with nothing held out yet."""
    recordings, batches = read_batches(folder)
    columns = read_columns(batches)
    is_fit = (columns.duration_s >= data.min_duration_s) & (columns.duration_s <= data.max_duration_s)
    none = np.zeros_like(is_fit)
    return Part(name, folder, recordings, columns, is_fit, none, none, none.astype(np.int32), none.astype(np.int8))


def decide(parts: Sequence[Part], data: Data) -> None:
    """Set `number`, which counts repeated texts, and `fate`.

    The limit of duplicates is taken from Kaldi's remove_dup_utts.sh.
    """
    wanted = [part.is_training & ~(part.columns.is_doubted & (data.uncertain == "drop")) for part in parts]
    trained = [part.is_fit & rows for part, rows in zip(parts, wanted, strict=True)]
    numbers = occurrences(np.concatenate([part.columns.text[rows] for part, rows in zip(parts, trained, strict=True)]))
    for part, is_wanted, rows in zip(parts, wanted, trained, strict=True):
        part.number[rows], numbers = numbers[: rows.sum()], numbers[rows.sum() :]
        conditions = {
            Fate.LONG: data.cut_long & is_wanted & (part.columns.duration_s > data.max_duration_s),
            Fate.UNFIT: ~part.is_fit,
            Fate.DEV: part.is_dev,
            Fate.KNOWN: part.is_known,
            Fate.DOUBTED: part.number == 0,
            Fate.REPEATED: part.number > data.max_duplicates,
            Fate.PLAIN: part.columns.is_plain,
        }
        fates = [np.int8(fate) for fate in conditions]
        part.fate = np.select(list(conditions.values()), fates, np.int8(Fate.TRAINED))


def training_lines(parts: Sequence[Part], data: Data) -> Iterator[str]:
    """Yield lines of the training utterances by recording; list the others."""

    def recordings(place: int) -> Iterator[tuple[str, int, list[str]]]:
        part = parts[place]
        lines = read_again(part.folder)
        for first, last in part.columns.runs():
            id_ = part.columns.recordings[part.columns.recording[first]]
            yield id_, place, list(_trained(part, slice(first, last), itertools.islice(lines, last - first), data))

    for _, _, lines in heapq.merge(*map(recordings, range(len(parts)))):
        yield from lines


def _trained(part: Part, rows: slice, lines: Iterable[str], data: Data) -> Iterator[str]:
    custom = f', "custom": {{"corpus": "{part.name}"}}}}\n'
    columns = part.fate[rows].tolist(), part.number[rows].tolist()
    for line, fate, number in zip(lines, *columns, strict=True):
        if fate == Fate.PLAIN:  # as format_line has it, in a tenth of the time
            yield line.rstrip()[:-1] + custom
        elif fate == Fate.TRAINED:
            yield format_line(with_corpus(parse_line(line), part.name))[1]
        else:
            _leave_out(part, parse_line(line), fate, number, data)


def _leave_out(part: Part, entry: Entry, fate: int, number: int, data: Data) -> None:
    if fate == Fate.REPEATED:
        part.repeated.append(Drop(entry["id"], "duplicate", f"{number} times: {entry.get('text') or ''}"))
    elif fate == Fate.UNFIT:
        part.unfit.append(unfit(entry, data))
    elif fate == Fate.KNOWN:
        part.known.append(Drop(entry["id"], "speaker in dev", str(entry.get("speaker"))))
    elif fate == Fate.DOUBTED:
        part.doubted.append(Drop(entry["id"], "uncertain", entry.get("text") or ""))
    else:
        (part.dev if fate == Fate.DEV else part.long).append(with_corpus(entry, part.name))


def unfit(entry: Entry, data: Data) -> Drop:
    """Return the drop of an utterance that is too short or too long."""
    reason = "too short" if entry["duration"] < data.min_duration_s else "too long"
    return Drop(entry["id"], reason, f"{entry['duration']:.3f} s")


def with_corpus(entry: Entry, name: str) -> Entry:
    """Return `entry` with the name of its corpus in the custom field ``corpus``."""
    return {**entry, "custom": {**entry.get("custom", {}), "corpus": name}}
