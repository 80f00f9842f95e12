"""Texts of a feature set, `transcripts.tsv`, joined when it is read.

A line an utterance: its id, a tab, its text. Features know audio, segments and speeds only, so another text of an
utterance needs no other features. A set without the file has its texts in its index.

Beside it, `words/` holds the texts as word numbers: `keys`, `ends` and `words`, little-endian and without a header,
`vocabulary.txt`, and `about.json` with the digest of the transcripts. They depend on no tokenizer. If they are missing
or of other transcripts, these are read line by line.

Letters in names: L lines of the transcripts, W words of all of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import mmap
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from asrtool.data.manifests.speed_copies import copy_prefix
from asrtool.data.storage.index import RERUN, Utterance, scan_index
from asrtool.errors import AsrtoolError
from asrtool.files import digest_of, write_beside, write_folder

FOLDER = "words"
ABOUT = "about.json"
VOCABULARY = "vocabulary.txt"
KINDS = {"keys": "<u8", "ends": "<u8", "words": "<u4"}
FILES = tuple(f"{FOLDER}/{name}" for name in (*KINDS, VOCABULARY, ABOUT))  # of a set
PIECE = 2**14  # lines at a time


@dataclass(frozen=True)
class TextColumns:
    """Texts by line; single spaces divide their words."""

    keys: np.ndarray  # (L,) uint64, of the ids of utterances, as key_of
    ends: np.ndarray  # (L + 1,) uint64: where the words of each end; the first one is 0, where they begin
    words: np.ndarray  # (W,) uint32, places in `vocabulary`
    vocabulary: list[str]

    def text(self, line: int) -> str:
        """Return the text of a line."""
        begin, end = self.ends[line : line + 2].tolist()
        return " ".join(self.vocabulary[word] for word in self.words[begin:end].tolist())


def key_of(name: str) -> int:
    """Return a 64-bit hash of an utterance id.

    Seven million ids have a collision with a chance of 1e-6.
    """
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def number_words(texts: Iterable[tuple[str, str]]) -> TextColumns:
    """The columns of ids and texts, in memory."""
    files = {name: io.BytesIO() for name in KINDS}
    vocabulary = _number(texts, files)
    arrays = {name: np.frombuffer(files[name].getbuffer(), kind) for name, kind in KINDS.items()}
    return TextColumns(**arrays, vocabulary=vocabulary)


def write_text_columns(directory: Path, transcripts: Path, texts: Iterable[tuple[str, str]]) -> None:
    """Write columns of ids and texts, which the file `transcripts` has."""
    with write_folder(directory / FOLDER, ABOUT) as folder:
        with ExitStack() as stack:
            files = {name: stack.enter_context(open(folder / name, "wb")) for name in KINDS}
            vocabulary = _number(texts, files)
        (folder / VOCABULARY).write_text("\n".join(vocabulary), encoding="utf-8", newline="")
        (folder / ABOUT).write_text(json.dumps({"sha256": digest_of(transcripts)}), encoding="utf-8")


def map_text_columns(directory: Path, transcripts: Path) -> TextColumns | None:
    """Map the columns of a set; None if missing, broken or of other transcripts."""
    folder = directory / FOLDER
    try:
        if json.loads((folder / ABOUT).read_text(encoding="utf-8"))["sha256"] != digest_of(transcripts):
            return None
        arrays = {name: map_raw(folder / name, kind) for name, kind in KINDS.items()}
        vocabulary = (folder / VOCABULARY).read_bytes().decode().split("\n")
    except (OSError, ValueError, KeyError, TypeError):
        return None
    columns = TextColumns(**arrays, vocabulary=vocabulary)
    is_whole = len(columns.ends) == len(columns.keys) + 1 and int(columns.ends[-1]) == len(columns.words)
    return columns if is_whole and int(columns.words.max()) < len(vocabulary) else None


def map_raw(path: Path, kind: str) -> np.ndarray:
    """Map an array file without a header; OSError, or ValueError if it is cut off."""
    mapped: np.ndarray = np.memmap(path, kind, "r")
    return mapped.view(np.ndarray)


class _Numbers(dict[str, int]):
    """Words, numbered as they come."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


def _number(texts: Iterable[tuple[str, str]], files: Mapping[str, IO[bytes]]) -> list[str]:
    """Write the columns to `files`; returns the vocabulary."""
    numbers, end = _Numbers(), 0
    files["ends"].write(bytes(8))
    lines = iter(texts)
    while piece := list(islice(lines, PIECE)):
        columns = {"keys": array("Q"), "ends": array("Q"), "words": array("I")}
        for name, text in piece:
            columns["keys"].append(key_of(name))
            columns["words"].extend(map(numbers.__getitem__, text.split(" ")))
            columns["ends"].append(end + len(columns["words"]))
        end += len(columns["words"])
        for name, kind in KINDS.items():
            files[name].write(np.asarray(columns[name]).astype(kind, copy=False).data)
    return list(numbers)


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
