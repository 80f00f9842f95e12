"""Texts of a set as word numbers, beside its transcripts.

`words/` of a set holds `keys`, `ends` and `words`, little-endian and without a header, `vocabulary.txt`, and
`about.json` with the digest of the transcripts. They depend on no tokenizer. If they are missing or of other
transcripts, these are read line by line.

Letters in names: L lines of the transcripts, W words of all of them.
"""

from __future__ import annotations

import hashlib
import io
import json
from array import array
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from asrtool.files import digest_of, write_folder

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
