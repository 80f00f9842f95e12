"""Merge files of single shards into large files, and split them again.

A process that is killed costs only its work: shards that are in two files are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

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
from asrtool.data.storage.shard_offsets import CUTS, LILCOM, Span, open_span


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
