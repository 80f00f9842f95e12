"""Texts of a feature set, `transcripts.tsv`, joined when it is read.

A line an utterance: its id, a tab, its text. Features know audio, segments and speeds only, so another text of an
utterance needs no other features. A set without the file has its texts in its index.
"""

from __future__ import annotations

import contextlib
import mmap
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.data.manifests.speed_copies import copy_prefix
from asrtool.data.storage.index import RERUN, Utterance, scan_index
from asrtool.data.storage.text_columns import TextColumns, map_text_columns, number_words, write_text_columns
from asrtool.errors import AsrtoolError
from asrtool.files import write_beside

TRANSCRIPTS = "transcripts.tsv"


def write_transcripts(directory: Path, texts: Iterable[tuple[str, str]]) -> None:
    """Write the file of a set, of ids and texts, and their columns.

    Raises AsrtoolError for one that a line has no room for.
    """
    path = directory / TRANSCRIPTS
    with write_beside(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for name, text in texts:
            if "\t" in name or "\n" in name or "\n" in text:
                what = f"utterance {name!r}: a tab or a line feed in its id, or a line feed in its text"
                raise AsrtoolError(what, "correct the manifest")
            file.write(f"{name}\t{text}\n")
    number_words_again(directory)


def number_words_again(directory: Path) -> None:
    """Write the text columns of a set; AsrtoolError if its texts are broken."""
    path = directory / TRANSCRIPTS
    write_text_columns(directory, path, _read(path))


def open_text_columns(directory: Path) -> TextColumns:
    """Map the text columns of a set, or read them from its texts.

    Raises AsrtoolError if the texts are missing or broken.
    """
    path = directory / TRANSCRIPTS
    if path.exists():
        return map_text_columns(directory, path) or number_words(_read(path))
    in_index = InIndex(directory)
    listed = (utterance for utterance, _ in scan_index(directory))
    return number_words((original_id(one), text or "") for one in listed for text in in_index.texts([one]))


def open_transcripts(directory: Path) -> Transcripts | InIndex:
    """Open the texts of a set; AsrtoolError as Transcripts."""
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
    """Texts by utterance id, mapped; 17 bytes a line are held."""

    def __init__(self, directory: Path) -> None:
        """Raises AsrtoolError where the file is missing, empty or broken."""
        path = directory / TRANSCRIPTS
        hashes, begins = array("q"), array("Q")
        with _readable(path):
            for begin, name, _ in _lines(path):
                hashes.append(hash(name))
                begins.append(begin)
            with open(path, "rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        order = np.argsort(np.frombuffer(hashes, np.int64), kind="stable")
        self._hashes = np.frombuffer(hashes, np.int64)[order]
        self._begins = np.frombuffer(begins, np.uint64)[order]

    def texts(self, utterances: Sequence[Utterance]) -> list[str | None]:
        """Return the text of each utterance; None if it has none any more.

        Copies at other speeds have the text of the original.
        """
        names = [original_id(utterance).encode() for utterance in utterances]
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
    """Return whether an utterance is a copy at another speed."""
    return bool(copy_prefix(utterance.id, utterance.speaker))


def original_id(utterance: Utterance) -> str:
    """Return the id of the utterance, or of the original of a copy."""
    return utterance.id.removeprefix(copy_prefix(utterance.id, utterance.speaker))


def _read(path: Path) -> Iterator[tuple[str, str]]:
    """Ids and texts; AsrtoolError as Transcripts, but for an empty file."""
    with _readable(path):
        for _, name, text in _lines(path):
            yield name.decode(), text.decode()


def _lines(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield position, id and text of each line, as bytes."""
    begin = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            name, tab, text = line.partition(b"\t")
            if not tab or not text.endswith(b"\n"):
                what = f"{path}:{number}: found no tab and line feed, expected an id, a tab and a text"
                raise AsrtoolError(what, RERUN)
            yield begin, name, text[:-1]
            begin += len(line)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AsrtoolError(f"{path}: no readable texts: {reason}", RERUN) from error
