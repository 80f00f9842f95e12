"""Texts of a feature set, `transcripts.tsv`, joined when it is read.

A line an utterance: its id, a tab, its text. Features depend on audio, segments and speeds only, so another text of
an utterance needs no other features. A set without the file has its texts in its index.

Beside it, `words/` holds the texts as word numbers: `keys`, `ends` and `words`, little-endian and without a header,
`vocabulary.txt`, and `about.json` with the digest of the transcripts. They depend on no tokenizer. If they are missing
or of other transcripts, these are read line by line.

Letters in names: L lines of the transcripts, W words of all of them.
"""

from __future__ import annotations

import collections
import hashlib
import io
import json
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

TRANSCRIPTS = "transcripts.tsv"
FOLDER = "words"
ABOUT = "about.json"
VOCABULARY = "vocabulary.txt"
KINDS = {"keys": "<u8", "ends": "<u8", "words": "<u4"}
FILES = tuple(f"{FOLDER}/{name}" for name in (*KINDS, VOCABULARY, ABOUT))  # files of a set
PIECE = 2**14  # lines at a time


@dataclass(frozen=True)
class TextColumns:
    """Texts by line; single spaces divide their words."""

    keys: np.ndarray  # (L,) uint64, of the ids of utterances, as key_of
    ends: np.ndarray  # (L + 1,) uint64: end of the words of each, after a 0
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


def is_copy(utterance: Utterance) -> bool:
    """Return whether an utterance is a copy at another speed."""
    return bool(copy_prefix(utterance.id, utterance.speaker))


def original_id(utterance: Utterance) -> str:
    """Return the id of the utterance, or of the original of a copy."""
    return utterance.id.removeprefix(copy_prefix(utterance.id, utterance.speaker))


def write_transcripts(directory: Path, texts: Iterable[tuple[str, str]]) -> None:
    """Write the file of a set, of ids and texts, and their columns.

    Raises AsrtoolError for a line feed or, in an id, a tab.
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
    with write_folder(directory / FOLDER, ABOUT) as folder:
        with ExitStack() as stack:
            files = {name: stack.enter_context(open(folder / name, "wb")) for name in KINDS}
            vocabulary = _number(_read(path), files)
        (folder / VOCABULARY).write_text("\n".join(vocabulary), encoding="utf-8", newline="")
        (folder / ABOUT).write_text(json.dumps({"sha256": digest_of(path)}), encoding="utf-8")


def number_words(texts: Iterable[tuple[str, str]]) -> TextColumns:
    """Return the columns of ids and texts, in memory."""
    files = {name: io.BytesIO() for name in KINDS}
    vocabulary = _number(texts, files)
    arrays = {name: np.frombuffer(files[name].getbuffer(), kind) for name, kind in KINDS.items()}
    return TextColumns(**arrays, vocabulary=vocabulary)


def _number(texts: Iterable[tuple[str, str]], files: Mapping[str, IO[bytes]]) -> list[str]:
    """Write the columns to `files`; returns the vocabulary, in the order of the texts."""
    numbers: collections.defaultdict[str, int] = collections.defaultdict(lambda: len(numbers))
    end = 0
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


def open_text_columns(directory: Path) -> TextColumns:
    """Map the text columns of a set, or read them from its texts.

    A set of an earlier asrtool has its texts in its index. Raises AsrtoolError if the texts are missing or broken.
    """
    path = directory / TRANSCRIPTS
    if not path.exists():
        return number_words((original_id(one), _text_in_index(directory, one)) for one, _ in scan_index(directory))
    columns = _map(directory / FOLDER, path) or number_words(_read(path))
    if not len(columns.keys):
        raise AsrtoolError(f"{path}: no readable texts: it is empty", RERUN)
    return columns


def _map(folder: Path, transcripts: Path) -> TextColumns | None:
    """Map the columns of a set; None if missing, broken or of other transcripts."""
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


def _text_in_index(directory: Path, utterance: Utterance) -> str:
    if not utterance.text:
        what = f"{directory}: no {TRANSCRIPTS}, and no text of {utterance.id} in its index"
        raise AsrtoolError(what, RERUN)
    return utterance.text


def _read(path: Path) -> Iterator[tuple[str, str]]:
    """Yield ids and texts; AsrtoolError if the file is missing or broken."""
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                name, tab, text = line.partition(b"\t")
                if not tab or not text.endswith(b"\n"):
                    what = f"{path}:{number}: found no tab and line feed, expected an id, a tab and a text"
                    raise AsrtoolError(what, RERUN)
                yield name.decode(), text[:-1].decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AsrtoolError(f"{path}: no readable texts: {reason}", RERUN) from error


class Transcripts:
    """Texts of a set by utterance; 16 bytes a line are held."""

    def __init__(self, directory: Path) -> None:
        """Open the columns; AsrtoolError as `open_text_columns`."""
        self._columns = open_text_columns(directory)
        self._lines = np.argsort(self._columns.keys, kind="stable")
        self._keys = self._columns.keys[self._lines]

    def texts(self, utterances: Sequence[Utterance]) -> list[str | None]:
        """Return the text of each utterance; None if it has none any more.

        Copies at other speeds have the text of the original.
        """
        return [self._text(key_of(original_id(utterance))) for utterance in utterances]

    def _text(self, key: int) -> str | None:
        place = int(np.searchsorted(self._keys, np.uint64(key)))
        is_there = place < len(self._keys) and int(self._keys[place]) == key
        return self._columns.text(int(self._lines[place])) if is_there else None
