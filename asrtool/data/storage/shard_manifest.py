"""Files of shards, and their manifests: `shard.NNNNNN.json.gz`, written last.

The first line of a manifest has the files with their sizes, and for each shard the digest of its content and its byte
ranges. A line for each shard follows, with its lines of the index, sums of features by speaker, and drops. A set is
merged from these manifests, and a killed command resumes from them. Shards in two files after a kill are equal, so
either file may go.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from asrtool.data.features.cmvn import Moments
from asrtool.data.manifests.manifest import Drop
from asrtool.data.storage.index import RERUN, Utterance, format_line
from asrtool.data.storage.shard import moved_cuts
from asrtool.data.storage.shard_offsets import CUTS, DATA, LILCOM, Span, open_span
from asrtool.errors import AsrtoolError
from asrtool.files import remove

NAME = "shard.{:06d}.json.gz"
TAR_END = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(frozen=True)
class Entry:
    """Shard in a file."""

    number: int
    data_of: int  # the shard with its data: another one if only the speed differs, which is changed on reading
    key: str  # digest of settings and code
    digest: str  # digest of its other inputs
    spans: dict[str, tuple[int, int]]  # name of a file, with {} for its number -> bytes of the shard

    @property
    def data_bytes(self) -> int:
        """Size of features or audio."""
        return sum(end - begin for name, (begin, end) in self.spans.items() if name in DATA.values())


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
    moments: dict[str, Moments]
    drops: list[Drop]


@contextmanager
def new_folder(directory: Path, number: int) -> Iterator[Path]:
    """Yield a new folder for the files of this number, which is removed in the end."""
    folder = directory / f".{os.getpid()}.tmp.{number:06d}"
    shutil.rmtree(folder, ignore_errors=True)  # leftovers of a killed process with this number
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
    spans = {re.sub(r"\.\d+\.", ".{:06d}.", path.name): (0, _content_bytes(path)) for path in sorted(folder.iterdir())}
    content = {
        "lines": "".join(map(format_line, utterances)),
        "moments": {key: [m.num_frames, m.sum_F.tolist(), m.sum_squares_F.tolist()] for key, m in moments.items()},
        "drops": [[drop.id, drop.reason, drop.detail] for drop in drops],
    }
    entry = Entry(*job, spans)
    _publish(folder, directory, [entry], [json.dumps(content).encode() + b"\n"])
    return entry.data_bytes


def _content_bytes(path: Path) -> int:
    """Return the size of a file, without the end blocks of a tar file."""
    if path.suffix != ".tar":
        return path.stat().st_size
    with tarfile.open(path, "r:") as tar:
        last = tar.getmembers()[-1]
    return last.offset_data + -(-last.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _publish(folder: Path, directory: Path, shards: Sequence[Entry], lines: Sequence[bytes]) -> None:
    """Move the files of `folder` to `directory`, and write their manifest.

    Files get their names before the manifest does.
    """
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    for name in files:
        (folder / name).replace(directory / name)
    header = {"files": files, "shards": [asdict(entry) for entry in shards]}
    name = NAME.format(shards[0].number)
    (folder / name).write_bytes(gzip.compress(b"".join([json.dumps(header).encode() + b"\n", *lines]), 1, mtime=0))
    (folder / name).replace(directory / name)


_ERRORS = (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError)


def _read(directory: Path, number: int) -> tuple[Header, list[bytes]]:
    """Return header and lines of a manifest; one of _ERRORS if it is broken."""
    with gzip.open(directory / NAME.format(number)) as file:
        first, *lines = file
    content = json.loads(first)
    entries = [{**entry, "spans": {k: tuple(v) for k, v in entry["spans"].items()}} for entry in content["shards"]]
    return Header(content["files"], [Entry(**entry) for entry in entries]), lines


def read_header(directory: Path, number: int) -> Header | None:
    """Read the header of a manifest; None if it is missing or cut off."""
    try:
        return _read(directory, number)[0]
    except _ERRORS:
        return None


def read_records(directory: Path, numbers: range) -> Iterator[tuple[int, Entry, Record]]:
    """Yield the manifests of shards `numbers` with the number of their file.

    Raises AsrtoolError naming a shard without a readable manifest.
    """
    number = numbers.start
    while number < numbers.stop:
        file = number
        try:
            header, lines = _read(directory, file)
            for entry, line in zip(header.shards, lines, strict=True):
                number = entry.number + 1
                yield file, entry, _record(line)
        except _ERRORS as error:
            raise AsrtoolError(f"{directory}: shard {number:06d} has no readable record", RERUN) from error


def _record(line: bytes) -> Record:
    content = json.loads(line)
    moments = {
        speaker: Moments(num, np.array(sums, dtype=np.float64), np.array(squares, dtype=np.float64))
        for speaker, (num, sums, squares) in content["moments"].items()
    }
    return Record(content["lines"], moments, [Drop(*drop) for drop in content["drops"]])


def merge_shards(directory: Path, numbers: range) -> None:
    """Merge the files of shards, one of each kind, reproducibly.

    The new files begin with the bytes of the files they replace: so this can be stopped anywhere and called again.
    Raises OSError if the disk is full.
    """
    header = read_header(directory, numbers[0])
    if not header or header.numbers != numbers:
        parts = [(number, *_read(directory, number)) for number in numbers]
        _write_file(directory, [(number, header.shards[0], lines[0]) for number, header, lines in parts])
    for number in numbers[1:]:
        if header := read_header(directory, number):
            _remove_file(directory, header)


def split_file(directory: Path, header: Header, keep: Container[int]) -> None:
    """Give the shards `keep` of a file their own files, and remove the others."""
    first = header.numbers[0]
    _, lines = _read(directory, first)
    # The first shard comes last, since its files replace the split ones.
    for entry, line in reversed(list(zip(header.shards, lines, strict=True))):
        if entry.number in keep:
            _write_file(directory, [(first, entry, line)])
    if first not in keep:
        _remove_file(directory, header)


def _write_file(directory: Path, shards: Sequence[tuple[int, Entry, bytes]]) -> None:
    """Write shards to files named for the first one, each from the files of a number."""
    to_file = shards[0][1].number
    with new_folder(directory, to_file) as folder:
        entries = [_append(entry, file, directory, to_file, folder) for file, entry, _ in shards]
        for path in folder.glob("*.tar"):
            with open(path, "ab") as tar:
                tar.write(TAR_END)
        _publish(folder, directory, entries, [line for *_, line in shards])


def _append(entry: Entry, file: int, directory: Path, to_file: int, folder: Path) -> Entry:
    """Append a shard in the files `file` of `directory` to `to_file` in `folder`."""
    spans: dict[str, tuple[int, int]] = {}
    for name in sorted(entry.spans, key=lambda name: name == CUTS):  # the cuts have the positions of the data
        begin, end = entry.spans[name]
        content = open_span(directory, name, Span(file, begin, end)).read()
        if len(content) < end - begin:
            raise OSError(f"{directory / name.format(file)} ends at byte {begin + len(content)}, expected {end}")
        if name == CUTS and LILCOM in spans:
            content = moved_cuts(content, to_file, spans[LILCOM][0] - entry.spans[LILCOM][0])
        with open(folder / name.format(to_file), "ab") as out:
            begin = out.tell()
            out.write(content)
        spans[name] = (begin, begin + len(content))
    return dataclasses.replace(entry, spans=dict(sorted(spans.items())))


def _remove_file(directory: Path, header: Header) -> None:
    """Remove the record first: no record may lack its files."""
    for name in (NAME.format(header.numbers[0]), *header.files):
        (directory / name).unlink(missing_ok=True)


@dataclass
class Finished:
    """Finished shards in a folder."""

    files: dict[int, range] = field(default_factory=dict)  # first shard of a file -> all shards of it
    num_bytes: dict[int, int] = field(default_factory=dict)  # shard -> its data


def find_finished(directory: Path, key: str, digests: Sequence[str], besides: Iterable[str]) -> Finished:
    """Return the finished shards with these `digests`; remove everything else.

    A file that has other shards too is split. The files `besides` stay.
    """
    found, kept, end = Finished(), set(besides), 0
    for number in sorted(int(path.name.split(".")[1]) for path in directory.glob("shard.*.json.gz")):
        header = read_header(directory, number)
        if not header or header.numbers.start < end or not header.is_whole(directory):
            continue  # shards of a file that was written of them, or half a file
        end = header.numbers.stop
        good = [e.number for e in header.shards if e.key == key and e.digest in digests[e.number : e.number + 1]]
        files: list[Header | None] = [header]
        if len(good) < len(header.shards):
            split_file(directory, header, good)
            files = [read_header(directory, number) for number in good]
        for file in filter(None, files):
            found.files[file.numbers.start] = file.numbers
            found.num_bytes.update({entry.number: entry.data_bytes for entry in file.shards})
            kept |= {NAME.format(file.numbers.start), *file.files}
    for path in list(directory.iterdir()):
        if path.name not in kept:
            remove(path)
    return found
