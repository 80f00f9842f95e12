"""Which shards an earlier command has finished."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from asrtool.corpus.merge import split_file
from asrtool.corpus.record import NAME, read_header
from asrtool.files import remove

_NAME = re.compile(r"shard\.(\d+)\.json\.gz")


def whole_files(directory: Path, key: str, digests: Sequence[str], besides: Iterable[str]) -> dict[int, range]:
    """Files that are finished and whose shards are made of what these `digests` say: first shard -> all shards.

    A file that has others as well is split. All that is not of finished shards is removed, but for the files `besides`.
    """
    files: dict[int, range] = {}
    end = 0
    for number in sorted(_recorded(directory)):
        header = read_header(directory, number)
        if number < end or not header or not header.is_whole(directory):
            continue
        good = {
            e.number for e in header.shards if e.number < len(digests) and (e.key, e.digest) == (key, digests[e.number])
        }
        if len(good) == len(header.shards):
            files[number] = header.numbers
        else:
            split_file(directory, header, good)
            files.update({one: range(one, one + 1) for one in good})
        end = header.numbers.stop
    kept = set(besides)
    for number in files:
        header = read_header(directory, number)
        kept |= {NAME.format(number), *(header.files if header else ())}
    for entry in list(os.scandir(directory)):
        if entry.name not in kept:
            remove(Path(entry.path))
    return files


def _recorded(directory: Path) -> Iterable[int]:
    return [int(match[1]) for entry in os.scandir(directory) if (match := _NAME.fullmatch(entry.name))]
