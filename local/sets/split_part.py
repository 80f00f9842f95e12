"""Utterances of a corpus as rows of numbers, and the decision on each in a split.

A large corpus takes 50 bytes an utterance and its text, instead of an object.
"""

from __future__ import annotations

import collections
import enum
import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from asrtool.data.manifests.manifest import Drop, format_line, parse_line, read_again, read_batches
from asrtool.data.manifests.validator import Entry, ManifestCounts
from asrtool.local.corpus import UNCERTAIN
from asrtool.settings.data import Data

ROW = np.dtype(
    [
        ("recording", "i4"),  # place in Part.ids
        ("speaker", "i4"),  # place in Part.speakers
        ("duration_s", "f8"),
        ("id", "i8"),  # a hash
        ("text", "i8"),  # a hash: two of two million texts share one with a chance below 1 in a million
        ("num_words", "i4"),
        ("num_bytes", "i4"),  # bytes of its line in Part.lines
        ("is_doubted", "?"),  # by its transcriber
        ("is_plain", "?"),  # without custom fields
    ]
)


class Decision(enum.IntEnum):
    """Decision on an utterance: the first that applies."""

    LONG = 0  # to be cut
    UNFIT = 1
    DEV = 2
    KNOWN = 3  # by a speaker of dev
    DOUBTED = 4
    REPEATED = 5
    PLAIN = 6  # trained on; its line is copied, with the corpus appended
    TRAINED = 7


class Part:
    """Corpus in training and dev, with nothing held out yet; masks are over its rows."""

    def __init__(self, folder: Path, name: str, data: Data) -> None:
        self.name, self.folder = name, folder
        self.recordings, batches = read_batches(folder)
        self.lines = bytearray()  # lines of text, one for each utterance with text
        ids: dict[str, int] = {}
        speakers: dict[str | None, int] = {}
        rows = [np.empty(0, ROW)]
        for batch in batches:
            texts = [entry.get("text") or "" for entry in batch]
            lines = [f"{text}\n".encode() if text else b"" for text in texts]
            self.lines += b"".join(lines)
            columns = (
                [ids.setdefault(entry["recording_id"], len(ids)) for entry in batch],
                [speakers.setdefault(entry.get("speaker"), len(speakers)) for entry in batch],
                [entry["duration"] for entry in batch],
                [hash(entry["id"]) for entry in batch],
                map(hash, texts),
                [len(text.split()) for text in texts],
                map(len, lines),
                [bool((entry.get("custom") or {}).get(UNCERTAIN)) for entry in batch],
                ["custom" not in entry for entry in batch],
            )
            rows.append(np.array(list(zip(*columns, strict=True)), ROW))
        self.ids, self.speakers = list(ids), list(speakers)
        self.rows = np.concatenate(rows)  # in the order of the manifest
        duration_s = self.rows["duration_s"]
        self.is_fit = (duration_s >= data.min_duration_s) & (duration_s <= data.max_duration_s)
        self.is_dev = np.zeros_like(self.is_fit)  # in a conversation that is held out
        self.is_known = np.zeros_like(self.is_fit)  # in another one, by a speaker of dev
        self.number = np.zeros(len(self.rows), np.int32)  # running count of its text in training; 0 if not trained on
        self.decision = np.zeros(len(self.rows), np.int8)
        self.drops: dict[int, list[Drop]] = collections.defaultdict(list)  # by decision
        self.kept: dict[int, list[Entry]] = collections.defaultdict(list)  # in dev, or to be cut

    @property
    def is_training(self) -> np.ndarray:
        """Mask of utterances in the training text, trained on or not."""
        return ~(self.is_dev | self.is_known)

    @property
    def is_trained(self) -> np.ndarray:
        return self.decision >= Decision.PLAIN

    def speech_s(self, rows: np.ndarray) -> dict[str, float]:
        """Return seconds of speech by recording, of the utterances of the mask `rows`."""
        chosen = self.rows[rows]
        total = np.bincount(chosen["recording"], chosen["duration_s"], len(self.ids))
        return {self.ids[place]: float(total[place]) for place in np.unique(chosen["recording"]).tolist()}

    def num_utterances(self, rows: np.ndarray) -> Counter[tuple[str, str | None]]:
        """Count the utterances of the mask `rows` by recording and speaker."""
        chosen, num = self.rows[rows], len(self.speakers)
        pairs, numbers = np.unique(chosen["recording"].astype(np.int64) * num + chosen["speaker"], return_counts=True)
        names = [(self.ids[pair // num], self.speakers[pair % num]) for pair in pairs.tolist()]
        return Counter(dict(zip(names, numbers.tolist(), strict=True)))

    def speakers_of(self, rows: np.ndarray) -> set[str | None]:
        """Return the speakers of the mask `rows`."""
        return {self.speakers[place] for place in np.unique(self.rows["speaker"][rows]).tolist()}

    def is_of(self, speakers: Container[str | None]) -> np.ndarray:
        """Return a mask of utterances of `speakers`."""
        return np.isin(self.rows["speaker"], [i for i, name in enumerate(self.speakers) if name in speakers])

    def text(self) -> list[memoryview]:
        """Return the training text; too short or too long utterances come last."""
        begin = np.concatenate(([0], np.cumsum(self.rows["num_bytes"], dtype=np.int64)))
        view, pieces = memoryview(self.lines), []
        for rows in (self.is_training & self.is_fit, self.is_training & ~self.is_fit):
            edges = begin[np.flatnonzero(np.diff(rows, prepend=False, append=False))]  # adjacent lines are one piece
            pieces += [view[first:last] for first, last in edges.reshape(-1, 2).tolist() if last > first]
        return pieces

    def count(self, counts: ManifestCounts) -> None:
        """Count the utterances that are trained on in `counts`."""
        rows = self.rows[self.is_trained]
        counts.add_checked(
            (self.ids[place] for place in np.unique(rows["recording"]).tolist()),
            self.speakers_of(self.is_trained),
            rows["id"].tobytes(),
            int(rows["num_words"].sum()),
            float(rows["duration_s"].sum()),
        )

    def training_lines(self, data: Data) -> Iterator[tuple[str, list[str]]]:
        """Yield recordings with the lines of their training utterances; list the others."""
        lines = read_again(self.folder)
        edges = np.flatnonzero(np.diff(self.rows["recording"], prepend=-1, append=-1)).tolist()
        for first, last in itertools.pairwise(edges):
            id_ = self.ids[self.rows["recording"][first]]
            yield id_, list(self._trained(slice(first, last), itertools.islice(lines, last - first), data))

    def _trained(self, rows: slice, lines: Iterable[str], data: Data) -> Iterator[str]:
        custom = f', "custom": {{"corpus": "{self.name}"}}}}\n'
        for line, decision, number in zip(lines, self.decision[rows].tolist(), self.number[rows].tolist(), strict=True):
            if decision == Decision.PLAIN:  # format_line takes ten times as long
                yield line.rstrip()[:-1] + custom
                continue
            entry = parse_line(line)
            if decision == Decision.TRAINED:
                yield format_line(with_corpus(entry, self.name))[1]
            elif decision in (Decision.DEV, Decision.LONG):
                self.kept[decision].append(with_corpus(entry, self.name))
            else:
                self.drops[decision].append(_drop(entry, decision, number, data))


def _drop(entry: Entry, decision: int, number: int, data: Data) -> Drop:
    text = entry.get("text") or ""
    if decision == Decision.REPEATED:
        return Drop(entry["id"], "duplicate", f"{number} times: {text}")
    if decision == Decision.KNOWN:
        return Drop(entry["id"], "speaker in dev", str(entry.get("speaker")))
    return Drop(entry["id"], "uncertain", text) if decision == Decision.DOUBTED else unfit(entry, data)


def occurrences(values: np.ndarray) -> np.ndarray:
    """Return the running count of each value: 1, 1, 2 for a, b, a."""
    order = np.argsort(values, kind="stable")
    _, first, sizes = np.unique(values[order], return_index=True, return_counts=True)
    numbers = np.empty(len(values), dtype=np.int32)
    numbers[order] = np.arange(len(values)) - np.repeat(first, sizes) + 1
    return numbers


def decide(parts: Sequence[Part], data: Data) -> None:
    """Set `number`, which counts repeated texts, and `decision`.

    The limit of duplicates is taken from Kaldi's remove_dup_utts.sh.
    """
    wanted = [part.is_training & ~(part.rows["is_doubted"] & (data.uncertain == "drop")) for part in parts]
    trained = [part.is_fit & rows for part, rows in zip(parts, wanted, strict=True)]
    numbers = occurrences(np.concatenate([part.rows["text"][rows] for part, rows in zip(parts, trained, strict=True)]))
    for part, is_wanted, rows in zip(parts, wanted, trained, strict=True):
        part.number[rows], numbers = numbers[: rows.sum()], numbers[rows.sum() :]
        conditions = {
            Decision.LONG: data.cut_long & is_wanted & (part.rows["duration_s"] > data.max_duration_s),
            Decision.UNFIT: ~part.is_fit,
            Decision.DEV: part.is_dev,
            Decision.KNOWN: part.is_known,
            Decision.DOUBTED: part.number == 0,
            Decision.REPEATED: part.number > data.max_duplicates,
            Decision.PLAIN: part.rows["is_plain"],
        }
        codes = [np.int8(decision) for decision in conditions]
        part.decision = np.select(list(conditions.values()), codes, np.int8(Decision.TRAINED))


def unfit(entry: Entry, data: Data) -> Drop:
    """Return the drop of an utterance that is too short or too long."""
    reason = "too short" if entry["duration"] < data.min_duration_s else "too long"
    return Drop(entry["id"], reason, f"{entry['duration']:.3f} s")


def with_corpus(entry: Entry, name: str) -> Entry:
    """Return `entry` with the name of its corpus in the custom field ``corpus``."""
    return {**entry, "custom": {**entry.get("custom", {}), "corpus": name}}
