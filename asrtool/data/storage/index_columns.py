"""Columns of what training needs of each utterance, beside the index.

Training maps them and parses no line. `columns/` of a set holds a file a column, little-endian and without a header,
and `about.json`: the digest and size of its `index.jsonl`, and the names of corpora. The features stage writes them
with the index; if they are missing or of another index, the lines are parsed.

Letters in names: N utterances of the index.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from asrtool.data.storage.index import INDEX, ShardTable, Utterance, scan_index
from asrtool.data.storage.transcripts import key_of, map_raw, original_id
from asrtool.files import digest_of, write_text

COLUMNS = "columns"
ABOUT = "about.json"
KINDS = {"num_frames": "<u4", "durations_s": "<f8", "corpora": "<u2", "keys": "<u8"}
TABLE = "shards"  # the file of the table of shards, int64
FILES = tuple(f"{COLUMNS}/{name}" for name in (*KINDS, TABLE, ABOUT))  # of a set; the last one says that all are whole
PIECE = 2**14  # utterances at a time

Packed = Mapping[str, Any]  # the columns of a shard, as its record has them


@dataclass(frozen=True)
class IndexColumns:
    """Columns of the utterances of an index, in storage order."""

    num_frames: np.ndarray  # (N,) uint32
    durations_s: np.ndarray  # (N,) float64
    corpora: np.ndarray  # (N,) uint16: places in `names`
    keys: np.ndarray  # (N,) uint64: by what the text of each is found, as key_of
    shards: np.ndarray  # as a ShardIndex takes it
    names: list[str]  # of corpora


def pack(utterances: Sequence[Utterance]) -> Packed:
    """The columns of a shard, for its record."""
    names: dict[str, int] = {}
    columns = _columns_of(utterances, names)
    return {
        "names": list(names),
        **{name: base64.b64encode(of_name.tobytes()).decode() for name, of_name in columns.items()},
    }


def _columns_of(utterances: Sequence[Utterance], names: dict[str, int]) -> dict[str, np.ndarray]:
    """Return columns as KINDS; new corpora are added to `names`."""
    values = {
        "num_frames": [utterance.num_frames for utterance in utterances],
        "durations_s": [utterance.duration_s for utterance in utterances],
        "corpora": [names.setdefault(utterance.corpus, len(names)) for utterance in utterances],
        "keys": [key_of(original_id(utterance)) for utterance in utterances],
    }
    return {name: np.array(values[name], kind) for name, kind in KINDS.items()}


class ColumnsWriter:
    """Writes the columns of an index, shard by shard."""

    def __init__(self, files: Mapping[str, BinaryIO]) -> None:
        self.names: dict[str, int] = {}
        self.digest = hashlib.sha256()
        self.table = ShardTable()
        self._files = files

    def add(self, number: int, packed: Packed, lines: bytes) -> None:
        """The shard of this number, with its lines of the index."""
        columns = {name: np.frombuffer(base64.b64decode(packed[name]), kind) for name, kind in KINDS.items()}
        if not len(columns["corpora"]):
            return
        self.digest.update(lines)
        self.table.add_shard(number, int(columns["num_frames"].sum()), len(columns["num_frames"]), len(lines))
        places = [self.names.setdefault(name, len(self.names)) for name in packed["names"]]
        columns["corpora"] = np.array(places, KINDS["corpora"])[columns["corpora"]]
        for name, file in self._files.items():
            file.write(columns[name].data)


@contextmanager
def writing_columns(directory: Path) -> Iterator[ColumnsWriter]:
    """Yield a writer of an index's shards; `about.json` is written last."""
    folder = directory / COLUMNS
    folder.mkdir(exist_ok=True)
    (folder / ABOUT).unlink(missing_ok=True)
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "wb")) for name in KINDS}
        writer = ColumnsWriter(files)
        yield writer
    writer.table.to_array().tofile(folder / TABLE)
    _write_about(directory, writer.digest.hexdigest(), list(writer.names))


def write_columns(directory: Path) -> None:
    """Write the columns of an existing index by its lines; raises as scan_index."""
    folder = directory / COLUMNS
    folder.mkdir(exist_ok=True)
    (folder / ABOUT).unlink(missing_ok=True)
    columns = _scan(directory)
    for name, kind in KINDS.items():
        getattr(columns, name).astype(kind).tofile(folder / name)
    columns.shards.tofile(folder / TABLE)
    _write_about(directory, digest_of(directory / INDEX), columns.names)


def _write_about(directory: Path, digest: str, names: Sequence[str]) -> None:
    about = {"sha256": digest, "size": (directory / INDEX).stat().st_size, "names": names}
    write_text(directory / COLUMNS / ABOUT, json.dumps(about) + "\n")


def open_index_columns(directory: Path) -> IndexColumns:
    """Map the columns of a set, or read them from its index.

    Raises AsrtoolError for lines as scan_index.
    """
    return _map(directory) or _scan(directory)


def index_digest(directory: Path) -> str:
    """Return the SHA-256 of a set's index in hex, read if its columns lack it.

    Raises AsrtoolError if it cannot be read.
    """
    about, path = _about(directory), directory / INDEX
    if about and _is_unchanged(directory, about["size"]):
        return str(about["sha256"])
    return _digest(path, path.stat().st_ctime_ns) if path.exists() else digest_of(path)


@functools.lru_cache(8)
def _digest(path: Path, changed_ns: int) -> str:
    """One that is younger than its columns, as in a copy, is read once by a command."""
    return digest_of(path)


def _is_unchanged(directory: Path, size: int) -> bool:
    """Return whether the index changed last before its columns were written.

    No program sets back the change time of an inode.
    """
    try:
        index, about = os.stat(directory / INDEX), os.stat(directory / COLUMNS / ABOUT)
    except OSError:
        return False
    return index.st_size == size and index.st_ctime_ns <= about.st_ctime_ns


def _about(directory: Path) -> dict[str, Any] | None:
    try:
        about = json.loads((directory / COLUMNS / ABOUT).read_text(encoding="utf-8"))
        return about if {"sha256", "size", "names"} <= about.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


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


def _scan(directory: Path) -> IndexColumns:
    table, names = ShardTable(), dict[str, int]()
    lines = scan_index(directory)
    parts = []
    while piece := list(islice(lines, PIECE)):
        for utterance, end in piece:
            table.add(utterance, end)
        parts.append(_columns_of([utterance for utterance, _ in piece], names))
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in KINDS}
    return IndexColumns(**arrays, shards=table.to_array(), names=list(names))
