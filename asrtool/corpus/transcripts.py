"""Texts of a feature set, `transcripts.tsv`, joined when it is read.

A line an utterance: its id, a tab, its text. Features know audio, segments and speeds only, so another text of an
utterance needs no other features. A set without the file has its texts in its index.
"""

from __future__ import annotations

import mmap
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.corpus.index import RERUN, Utterance
from asrtool.errors import AsrtoolError
from asrtool.files import write_beside

TRANSCRIPTS = "transcripts.tsv"
COPY = re.compile(r"sp[0-9.]+-")  # before id and speaker of a copy at another speed


def write_transcripts(directory: Path, texts: Iterable[tuple[str, str]]) -> None:
    """Write the file of a set, of ids and texts. Raises AsrtoolError for one that a line has no room for."""
    with write_beside(directory / TRANSCRIPTS) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for name, text in texts:
            if "\t" in name or "\n" in name or "\n" in text:
                what = f"utterance {name!r}: a tab or a line feed in its id, or a line feed in its text"
                raise AsrtoolError(what, "correct the manifest")
            file.write(f"{name}\t{text}\n")


def open_transcripts(directory: Path) -> Transcripts | InIndex:
    """Those of the set `directory`. Raises AsrtoolError as Transcripts does."""
    return Transcripts(directory) if (directory / TRANSCRIPTS).exists() else InIndex(directory)


@dataclass(frozen=True)
class InIndex:
    """Texts of a set that an earlier asrtool wrote, in its index."""

    directory: Path

    def texts(self, utterances: Sequence[Utterance]) -> list[str | None]:
        """The text of each. Raises AsrtoolError for one that has none."""
        for one in utterances:
            if not one.text:
                what = f"{self.directory}: no {TRANSCRIPTS}, and no text of {one.id} in its index"
                raise AsrtoolError(what, RERUN)
        return [one.text for one in utterances]


class Transcripts:
    """Texts by the ids of utterances. The file is mapped; of each line 17 bytes are held, its hash and its place."""

    def __init__(self, directory: Path) -> None:
        """Raises AsrtoolError where the file is missing, empty or broken."""
        path = directory / TRANSCRIPTS
        hashes, begins, end = array("q"), array("Q"), 0
        try:
            with open(path, "rb") as file:
                for number, line in enumerate(file, 1):
                    name, tab, _ = line.partition(b"\t")
                    if not tab or not line.endswith(b"\n"):
                        what = f"{path}:{number}: found no tab and line feed, expected an id, a tab and a text"
                        raise AsrtoolError(what, RERUN)
                    hashes.append(hash(name))
                    begins.append(end)
                    end += len(line)
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise AsrtoolError(f"{path}: no readable texts: {reason}", RERUN) from error
        order = np.argsort(np.frombuffer(hashes, np.int64), kind="stable")
        self._hashes = np.frombuffer(hashes, np.int64)[order]
        self._begins = np.frombuffer(begins, np.uint64)[order]

    def texts(self, utterances: Sequence[Utterance]) -> list[str | None]:
        """The text of each, copies at other speeds having that of the original; None for one that has none any more."""
        names = [_original(utterance).encode() for utterance in utterances]
        keys = np.fromiter(map(hash, names), np.int64, len(names))
        places = np.searchsorted(self._hashes, keys).tolist()
        return [self._text(*item) for item in zip(places, keys.tolist(), names, strict=True)]

    def _text(self, place: int, key: int, name: bytes) -> str | None:
        while place < len(self._hashes) and self._hashes[place] == key:
            begin = int(self._begins[place])
            behind = begin + len(name) + 1
            if self._data[begin:behind] == name + b"\t":
                return self._data[behind : self._data.find(b"\n", behind)].decode()
            place += 1  # another id of the same hash
        return None


def is_copy(utterance: Utterance) -> bool:
    """Whether it is one at another speed."""
    return bool(COPY.match(utterance.id) and COPY.match(utterance.speaker))


def _original(utterance: Utterance) -> str:
    return COPY.sub("", utterance.id, count=1) if is_copy(utterance) else utterance.id
