"""Compute the shards of a set, and merge them to files of FILE_BYTES.

A shard stays the unit of planning, of computing and of resuming. Which shards become a file depends on their sizes
alone. Shards in two files after a kill are equal, so either file may go.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from asrtool.data.features.extract import compute_shard
from asrtool.data.features.shard_plan import ShardJob
from asrtool.data.storage.index import write_feature_settings
from asrtool.data.storage.shard import moved_cuts
from asrtool.data.storage.shard_manifest import (
    NAME,
    TAR_END,
    Entry,
    Header,
    new_folder,
    publish,
    read_header,
    read_lines,
)
from asrtool.data.storage.shard_offsets import CUTS, DATA, LILCOM, Span, open_span
from asrtool.data.workers.processes import MapPieces
from asrtool.files import remove
from asrtool.settings.data import Features


@dataclass(frozen=True)
class Merge:
    """Shards that become a file."""

    numbers: range

    @property
    def name(self) -> str:
        """Title for error messages."""
        return f"the file of shards {self.numbers[0]:06d} to {self.numbers[-1]:06d}"


def merge_shards(job: Merge, directory: Path) -> None:
    """Merge the files of the shards of `job`, one of each kind, reproducibly.

    Files get their names before the manifest does, and begin with the bytes of the files they replace: so this can be
    stopped anywhere and called again. Raises OSError if the disk is full.
    """
    first = job.numbers[0]
    header = read_header(directory, first)
    if not header or header.numbers != job.numbers:
        with new_folder(directory, first) as folder:
            entries, lines = [], []
            for number in job.numbers:
                found, of_shard = read_lines(directory, number)
                entries.append(_copy(found.shards[0], number, directory, first, folder))
                lines += of_shard
            _end_tars(folder)
            publish(folder, directory, entries, lines)
    for number in job.numbers[1:]:
        header = read_header(directory, number)
        if header:
            remove_file(directory, header)


def split_file(directory: Path, header: Header, keep: Container[int]) -> None:
    """Give the shards `keep` of a file their own files, and remove the others."""
    first = header.shards[0].number
    _, lines = read_lines(directory, first)
    # The first one is the last, since its files take the place of those that are split.
    for entry, line in reversed(list(zip(header.shards, lines, strict=True))):
        if entry.number in keep:
            with new_folder(directory, entry.number) as folder:
                alone = _copy(entry, first, directory, entry.number, folder)
                _end_tars(folder)
                publish(folder, directory, [alone], [line])
    if first not in keep:
        remove_file(directory, header)


def remove_file(directory: Path, header: Header) -> None:
    """The record first, so that none is without files."""
    for name in (NAME.format(header.shards[0].number), *header.files):
        (directory / name).unlink(missing_ok=True)


def _copy(entry: Entry, file: int, directory: Path, to_file: int, folder: Path) -> Entry:
    """Append a shard in the files `file` of `directory` to `to_file` in `folder`."""
    spans: dict[str, tuple[int, int]] = {}
    for name in sorted(entry.spans, key=lambda name: name == CUTS):  # which say where the data are
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


def _end_tars(folder: Path) -> None:
    for path in folder.glob("*.tar"):
        with open(path, "ab") as file:
            file.write(TAR_END)


_NAME = re.compile(r"shard\.(\d+)\.json\.gz")


@dataclass
class Finished:
    """Shards that are there."""

    files: dict[int, range] = field(default_factory=dict)  # first shard of a file -> all shards of it
    num_bytes: dict[int, int] = field(default_factory=dict)  # shard -> its data


def find_finished(directory: Path, key: str, digests: Sequence[str], besides: Iterable[str]) -> Finished:
    """Return the finished shards with these `digests`; remove everything else.

    A file that has other shards too is split. The files `besides` stay.
    """
    found, kept, end = Finished(), set(besides), 0
    for number in sorted(_recorded(directory)):
        header = read_header(directory, number)
        if number < end or not header or not header.is_whole(directory):
            continue  # shards of a file that was written of them, or half a file
        end = header.numbers.stop
        expected = dict(enumerate(digests[number:end], number))
        good = [e.number for e in header.shards if (e.key, e.digest) == (key, expected.get(e.number))]
        for part in [header] if len(good) == len(header.shards) else _split(directory, header, good):
            found.files[part.numbers.start] = part.numbers
            found.num_bytes.update({entry.number: entry.num_bytes(DATA.values()) for entry in part.shards})
            kept |= {NAME.format(part.numbers.start), *part.files}
    for path in list(directory.iterdir()):
        if path.name not in kept:
            remove(path)
    return found


def _split(directory: Path, header: Header, keep: Sequence[int]) -> list[Header]:
    split_file(directory, header, keep)
    return [part for number in keep if (part := read_header(directory, number))]


def _recorded(directory: Path) -> Iterable[int]:
    return [int(match[1]) for entry in os.scandir(directory) if (match := _NAME.fullmatch(entry.name))]


FILE_BYTES = 256 * 2**20  # of data, at least; the last file of a set has the rest


def compute_piece(piece: ShardJob | Merge, directory: Path, features: Features, key: str) -> tuple[int, int] | None:
    """Compute a shard (returns its number and bytes), or merge a file."""
    if isinstance(piece, Merge):
        merge_shards(piece, directory)
        return None
    return piece.number, compute_shard(piece, directory, features, key)


class Computing:
    """Computation of the unfinished shards of `jobs`, with consecutive numbers.

    A file is written as soon as its shards are there, so there are few small files at once.
    """

    def __init__(self, directory: Path, jobs: Sequence[ShardJob], finished: Finished) -> None:
        self._directory, self._jobs = directory, jobs
        self._files, self._sizes = dict(finished.files), dict(finished.num_bytes)
        self.missing = [job for job in jobs if job.number not in self._sizes]
        self._merges: deque[Merge] = deque()
        self._begin = self._end = 0  # of the shards of the next file, places in `jobs`
        self._num_bytes = 0  # of these

    def run(self, features: Features, key: str, map_pieces: MapPieces) -> Iterator[int]:
        """Compute; the number of each of `missing` when it is there."""
        compute = functools.partial(compute_piece, directory=self._directory, features=features, key=key)
        self._form_files()
        for done in map_pieces(compute, self._pieces()):
            if done:
                self._sizes.update([done])
                self._form_files()
                yield done[0]
        for _ in map_pieces(compute, self._merges):
            pass
        if features.storage == "flac":  # who reads audio computes as they say
            write_feature_settings(self._directory, dataclasses.replace(features, num_jobs=0, executor="local"))

    def _pieces(self) -> Iterator[ShardJob | Merge]:
        for job in self.missing:
            while self._merges:
                yield self._merges.popleft()
            yield job

    def _form_files(self) -> None:
        """Form files of the shards whose sizes are known."""
        while self._end < len(self._jobs) and self._jobs[self._end].number in self._sizes:
            self._num_bytes += self._sizes[self._jobs[self._end].data_of]
            self._end += 1
            if self._num_bytes >= FILE_BYTES or self._end == len(self._jobs):
                self._form_file(range(self._jobs[self._begin].number, self._jobs[self._end - 1].number + 1))
                self._begin, self._num_bytes = self._end, 0

    def _form_file(self, numbers: range) -> None:
        if self._files.get(numbers[0]) == numbers:
            return
        for number in numbers:
            header = read_header(self._directory, number) if len(self._files.get(number, ())) > 1 else None
            if header:
                split_file(self._directory, header, header.numbers)
        if len(numbers) > 1:
            self._merges.append(Merge(numbers))
