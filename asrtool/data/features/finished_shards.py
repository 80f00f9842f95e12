"""Find the shards that an earlier command has finished."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from asrtool.data.features.merge_shards import split_file
from asrtool.data.storage.shard_manifest import NAME, Header, read_header
from asrtool.data.storage.shard_offsets import DATA
from asrtool.files import remove

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
