"""Manifest of the shards in a file: `shard.NNNNNN.json.gz`, written last.

The first line has the files with their sizes, and for each shard the digest of its content and its byte ranges. A
line for each shard follows, with its lines of the index, sums of features by speaker, and drops. A set is merged from
these manifests, and a killed command resumes from them.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.data.features.cmvn import Moments
from asrtool.data.manifests.manifest import Drop
from asrtool.data.storage.index import RERUN, Utterance, format_line
from asrtool.data.storage.index_columns import Packed, pack
from asrtool.data.storage.shard_offsets import DATA
from asrtool.errors import AsrtoolError
from asrtool.files import remove

NAME = "shard.{:06d}.json.gz"
TAR_END = bytes(2 * tarfile.BLOCKSIZE)
_NUMBER = re.compile(r"\.\d+\.")


@dataclass(frozen=True)
class Entry:
    """A shard of a file."""

    number: int
    data_of: (
        int  # the shard that has its data: another one where only the speed differs, and that is changed on reading
    )
    key: str  # of settings and code
    digest: str  # of what else it is made of
    spans: dict[str, tuple[int, int]]  # name of a file, with {} for its number -> bytes of the shard

    def num_bytes(self, names: Collection[str]) -> int:
        """Total size of the named files."""
        return sum(end - begin for name, (begin, end) in self.spans.items() if name in names)


@dataclass(frozen=True)
class Header:
    """Header of a shard manifest."""

    files: dict[str, int]  # name -> size in bytes
    shards: list[Entry]  # consecutive; files are named for the first one

    @property
    def numbers(self) -> range:
        return range(self.shards[0].number, self.shards[-1].number + 1)

    def is_whole(self, directory: Path) -> bool:
        """Return whether all files exist with their sizes."""
        try:
            return all((directory / name).stat().st_size == size for name, size in self.files.items())
        except OSError:
            return False


@dataclass(frozen=True)
class Record:
    """Manifest of a shard; index lines as they are in the index."""

    lines: str
    columns: Packed  # what they say, as training reads it
    num_utterances: int
    moments: dict[str, Moments]
    drops: list[Drop]


@contextmanager
def new_folder(directory: Path, number: int) -> Iterator[Path]:
    """Yield a new folder for the files of this number, which is removed in the end."""
    folder = directory / f".{os.getpid()}.tmp.{number:06d}"
    shutil.rmtree(folder, ignore_errors=True)  # of a killed process of this number
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_new_folders(directory: Path) -> None:
    """Remove folders of killed processes."""
    for folder in directory.glob(".*.tmp.*"):
        remove(folder)


def publish_shard(
    folder: Path,
    directory: Path,
    job: tuple[int, int, str, str],
    utterances: Sequence[Utterance],
    moments: Mapping[str, Moments],
    drops: Sequence[Drop],
) -> int:
    """Move the files of a shard from `folder` to `directory`, and write its manifest.

    `job` has the shard's number, the number of the shard with its data, key and digest, as Entry. Returns the bytes of
    data.
    """
    spans = {_NUMBER.sub(".{:06d}.", path.name): (0, _content_bytes(path)) for path in sorted(folder.iterdir())}
    content = {
        "lines": "".join(map(format_line, utterances)),
        "columns": pack(utterances),
        "num_utterances": len(utterances),
        "moments": {who: [m.num_frames, m.sum_F.tolist(), m.sum_squares_F.tolist()] for who, m in moments.items()},
        "drops": [[drop.id, drop.reason, drop.detail] for drop in drops],
    }
    entry = Entry(*job, spans)
    publish(folder, directory, [entry], [json.dumps(content).encode() + b"\n"])
    return entry.num_bytes(DATA.values())


def publish(folder: Path, directory: Path, shards: Sequence[Entry], lines: Sequence[bytes]) -> None:
    """Move the files of `folder` to `directory`, and write their manifest."""
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    for name in files:
        (folder / name).replace(directory / name)
    header = {"files": files, "shards": [asdict(entry) for entry in shards]}
    name = NAME.format(shards[0].number)
    (folder / name).write_bytes(gzip.compress(b"".join([json.dumps(header).encode() + b"\n", *lines]), 1, mtime=0))
    (folder / name).replace(directory / name)


def read_header(directory: Path, number: int) -> Header | None:
    """Read the header of a manifest; None if it is missing or cut off."""
    try:
        with gzip.open(directory / NAME.format(number)) as file:
            header = _header(file.readline())
            while file.read(2**20):
                pass
            return header
    except _ERRORS:
        return None


def read_lines(directory: Path, number: int) -> tuple[Header, list[bytes]]:
    """Header and lines of a record that is whole."""
    with gzip.open(directory / NAME.format(number)) as file:
        return _header(file.readline()), list(file)


def read_records(directory: Path, numbers: range) -> Iterator[tuple[int, Entry, Record]]:
    """Yield the manifests of shards `numbers` with the number of their file.

    Raises AsrtoolError naming a shard without a readable manifest.
    """
    number = numbers.start
    while number < numbers.stop:
        path = directory / NAME.format(number)
        try:
            with gzip.open(path) as file:
                for entry in _header(file.readline()).shards:
                    number = entry.number + 1
                    yield int(path.name.split(".")[1]), entry, _record(file.readline())
        except _ERRORS as error:
            raise AsrtoolError(f"{directory}: shard {number:06d} has no readable record", RERUN) from error


_ERRORS = (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError)


def _header(line: bytes) -> Header:
    content = json.loads(line)
    entries = [
        Entry(**{**entry, "spans": {k: tuple(v) for k, v in entry["spans"].items()}}) for entry in content["shards"]
    ]
    return Header(content["files"], entries)


def _record(line: bytes) -> Record:
    content = json.loads(line)
    return Record(
        moments={who: _moments(*sums) for who, sums in content.pop("moments").items()},
        drops=[Drop(*drop) for drop in content.pop("drops")],
        **content,
    )


def _content_bytes(path: Path) -> int:
    """Size of a file, of a tar file without what ends it."""
    if path.suffix != ".tar":
        return path.stat().st_size
    with tarfile.open(path, "r:") as tar:
        last = tar.getmembers()[-1]
    return last.offset_data + -(-last.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _moments(num_frames: int, sums: Any, squares: Any) -> Moments:
    return Moments(num_frames, np.array(sums, dtype=np.float64), np.array(squares, dtype=np.float64))
