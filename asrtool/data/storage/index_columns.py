"""Columns of an index that training needs, stored beside it.

Training maps them and parses no line. `columns/` of a set holds a file a column, little-endian and without a header,
and `about.json`: the digest and size of its `index.jsonl`, and the names of corpora. The features stage writes them
with the index; if they are missing or of another index, the lines are parsed.

Letters in names: N utterances of the index.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from asrtool.data.storage.index import INDEX, Utterance, scan_index
from asrtool.data.storage.transcripts import key_of, map_raw, original_id
from asrtool.files import digest_of, read_object, write_text

COLUMNS = "columns"
ABOUT = "about.json"
KINDS = {"num_frames": "<u4", "durations_s": "<f8", "corpora": "<u2", "keys": "<u8"}
TABLE = "shards"  # the file of the table of shards, int64
FILES = tuple(
    f"{COLUMNS}/{name}" for name in (*KINDS, TABLE, ABOUT)
)  # files of a set; the last one is written when all are complete


@dataclass(frozen=True)
class IndexColumns:
    """Columns of the utterances of an index, in storage order."""

    num_frames: np.ndarray  # (N,) uint32
    durations_s: np.ndarray  # (N,) float64
    corpora: np.ndarray  # (N,) uint16: places in `names`
    keys: np.ndarray  # (N,) uint64: key of the text of each, as key_of
    shards: np.ndarray  # (shards + 1, 4): number, first utterance, first byte, frames; the last row is the end
    names: list[str]  # names of corpora


class ColumnsWriter:
    """Writer of the columns of an index to `files`, shard by shard."""

    def __init__(self, files: Mapping[str, IO[bytes]]) -> None:
        self.names: dict[str, int] = {}
        self.digest = hashlib.sha256()
        self._files = files
        self._table = [[-1, 0, 0, 0]]  # as IndexColumns.shards; the last row is not there yet

    def add(self, number: int, utterances: Sequence[Utterance], lines: bytes) -> None:
        """Add the shard of this number, with its lines of the index."""
        if not utterances:
            return
        num_frames = [utterance.num_frames for utterance in utterances]
        columns: dict[str, Sequence[float]] = {
            "num_frames": num_frames,
            "durations_s": [utterance.duration_s for utterance in utterances],
            "corpora": [self.names.setdefault(utterance.corpus, len(self.names)) for utterance in utterances],
            "keys": [key_of(original_id(utterance)) for utterance in utterances],
        }
        self.digest.update(lines)
        _, first, begin, _ = self._table[-1]
        self._table[-1] = [number, first, begin, sum(num_frames)]
        self._table.append([-1, first + len(utterances), begin + len(lines), 0])
        for name, file in self._files.items():
            file.write(np.array(columns[name], KINDS[name]).data)

    def add_lines(self, directory: Path) -> None:
        """Add all shards of an existing index; raises as scan_index."""
        for number, shard in itertools.groupby(scan_index(directory), lambda pair: pair[0].shard):
            utterances, lines = zip(*shard, strict=True)
            self.add(number, utterances, b"".join(lines))

    def shards(self) -> np.ndarray:
        """Return the table of shards."""
        return np.array(self._table, dtype=np.int64)


@contextmanager
def writing_columns(directory: Path) -> Iterator[ColumnsWriter]:
    """Yield a writer of an index's shards; `about.json` is written last."""
    folder = directory / COLUMNS
    folder.mkdir(exist_ok=True)
    (folder / ABOUT).unlink(missing_ok=True)
    with ExitStack() as stack:
        writer = ColumnsWriter({name: stack.enter_context(open(folder / name, "wb")) for name in KINDS})
        yield writer
    writer.shards().tofile(folder / TABLE)
    size = (directory / INDEX).stat().st_size
    about = {"sha256": writer.digest.hexdigest(), "size": size, "names": list(writer.names)}
    write_text(folder / ABOUT, json.dumps(about) + "\n")


def write_columns(directory: Path) -> None:
    """Write the columns of an existing index by its lines; raises as scan_index."""
    with writing_columns(directory) as writer:
        writer.add_lines(directory)


def open_index_columns(directory: Path) -> IndexColumns:
    """Map the columns of a set, or read them from its index.

    Raises AsrtoolError for lines as scan_index.
    """
    return _map(directory) or _parse(directory)


def _map(directory: Path) -> IndexColumns | None:
    """Map the columns; None if they are missing, broken or of another index."""
    about = _about(directory)
    if not about or about["sha256"] != index_digest(directory):
        return None
    try:
        arrays = {name: map_raw(directory / COLUMNS / name, kind) for name, kind in KINDS.items()}
        shards = np.fromfile(directory / COLUMNS / TABLE, "<i8").reshape(-1, 4)
    except (OSError, ValueError):
        return None
    if not len(shards) or {len(array) for array in arrays.values()} != {int(shards[-1, 1])}:
        return None
    return IndexColumns(**arrays, shards=shards, names=list(about["names"]))


def _parse(directory: Path) -> IndexColumns:
    files = {name: io.BytesIO() for name in KINDS}
    writer = ColumnsWriter(files)
    writer.add_lines(directory)
    arrays = {name: np.frombuffer(files[name].getbuffer(), kind) for name, kind in KINDS.items()}
    return IndexColumns(**arrays, shards=writer.shards(), names=list(writer.names))


def index_digest(directory: Path) -> str:
    """Return the SHA-256 of a set's index in hex, read if its columns lack it.

    Raises AsrtoolError if it cannot be read.
    """
    about, path = _about(directory), directory / INDEX
    if not path.exists():
        return digest_of(path)
    index = os.stat(path)
    if about:
        written = os.stat(directory / COLUMNS / ABOUT)
        # No program sets back the change time of an inode.
        if index.st_size == about["size"] and index.st_ctime_ns <= written.st_ctime_ns:
            return str(about["sha256"])
    return _digest(path, index.st_ctime_ns)


@functools.lru_cache(8)
def _digest(path: Path, changed_ns: int) -> str:
    """Return the digest of an index that is newer than its columns, cached by process."""
    return digest_of(path)


def _about(directory: Path) -> dict[str, Any] | None:
    about = read_object(directory / COLUMNS / ABOUT)
    return about if {"sha256", "size", "names"} <= about.keys() else None
