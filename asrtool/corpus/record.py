"""What became of each shard: `shard.NNNNNN.json.gz`, written last, so that a shard with a record is whole.

It has the digest of what the shard is made of, its files with their sizes, its lines of the index, sums of features by
speaker, and what was left out. A set is put together of records, and a command that was killed continues from them.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.corpus.cmvn import Moments
from asrtool.corpus.index import Utterance, format_line
from asrtool.corpus.manifest import Drop
from asrtool.files import remove

_NAME = re.compile(r"shard\.(\d+)\.json\.gz")
Write = Callable[[str, str, Sequence[Utterance], Mapping[str, Moments], Sequence[Drop]], None]


@dataclass(frozen=True)
class Record:
    """Of a shard; lines of the index as they stand there."""

    key: str  # of settings and code
    digest: str  # of what else it is made of
    files: dict[str, int]  # name -> size in bytes
    lines: str
    num_utterances: int
    moments: dict[str, Moments]
    drops: list[Drop]


@contextmanager
def writing_shard(directory: Path, number: int) -> Iterator[tuple[Path, Write]]:
    """Yield a new folder for the files of a shard, and a function that moves them to `directory` and writes the record.

    That takes a key, a digest, utterances, sums and drops. The folder is removed in the end.
    """
    folder = directory / f".{os.getpid()}.tmp.{number:06d}"
    shutil.rmtree(folder, ignore_errors=True)  # of a killed process of this number
    folder.mkdir()

    def write(
        key: str, digest: str, utterances: Sequence[Utterance], moments: Mapping[str, Moments], drops: Sequence[Drop]
    ) -> None:
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        for name in files:
            (folder / name).replace(directory / name)
        content = {
            "key": key,
            "digest": digest,
            "files": files,
            "lines": "".join(map(format_line, utterances)),
            "num_utterances": len(utterances),
            "moments": {who: [m.num_frames, m.sum_F.tolist(), m.sum_squares_F.tolist()] for who, m in moments.items()},
            "drops": [[drop.id, drop.reason, drop.detail] for drop in drops],
        }
        path = _path(folder, number)
        path.write_bytes(gzip.compress(json.dumps(content).encode(), 1, mtime=0))
        path.replace(_path(directory, number))

    try:
        yield folder, write
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_record(directory: Path, number: int) -> Record | None:
    """None where there is none that can be read."""
    try:
        content = json.loads(gzip.decompress(_path(directory, number).read_bytes()))
        return Record(
            moments={who: _moments(*sums) for who, sums in content.pop("moments").items()},
            drops=[Drop(*drop) for drop in content.pop("drops")],
            **content,
        )
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        return None


def whole_shards(directory: Path, key: str, digests: Sequence[str], besides: Iterable[str]) -> set[int]:
    """The numbers of the shards that are finished and made of what these `digests` say.

    All that is not of them is removed, but for the files `besides`.
    """
    found, kept = set(), set(besides)
    for number in _recorded(directory):
        record = read_record(directory, number) if number < len(digests) else None
        if record and (record.key, record.digest) == (key, digests[number]) and _has_files(directory, record.files):
            found.add(number)
            kept |= {_path(directory, number).name, *record.files}
    for entry in list(os.scandir(directory)):
        if entry.name not in kept:
            remove(Path(entry.path))
    return found


def _recorded(directory: Path) -> Iterable[int]:
    return [int(match[1]) for entry in os.scandir(directory) if (match := _NAME.fullmatch(entry.name))]


def _has_files(directory: Path, files: Mapping[str, int]) -> bool:
    try:
        return all((directory / name).stat().st_size == size for name, size in files.items())
    except OSError:
        return False


def _moments(num_frames: int, sums: Any, squares: Any) -> Moments:
    return Moments(num_frames, np.array(sums, dtype=np.float64), np.array(squares, dtype=np.float64))


def _path(directory: Path, number: int) -> Path:
    return directory / f"shard.{number:06d}.json.gz"
