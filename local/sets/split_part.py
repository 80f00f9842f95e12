"""Decide on each utterance of a corpus when sets are split."""

from __future__ import annotations

import enum
import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from asrtool.data.manifests.manifest import Drop, format_line, parse_line, read_again, read_batches
from asrtool.data.manifests.validator import Entry
from asrtool.local.sets.utterance_columns import Columns, occurrences, read_columns
from asrtool.settings.data import Data


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
