"""Compute the shards of a set, and merge them to files of FILE_BYTES.

A shard stays the unit of planning, of computing and of resuming. Which shards become a file depends on their sizes
alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from asrtool.data.features.extract import compute_shard
from asrtool.data.features.shard_plan import ShardJob
from asrtool.data.storage.index import write_feature_settings
from asrtool.data.storage.shard_manifest import Finished, merge_shards, read_header, split_file
from asrtool.data.workers.processes import MapPieces
from asrtool.settings.data import Features

FILE_BYTES = 256 * 2**20  # of data, at least; the last file of a set has the rest


@dataclass(frozen=True)
class Merge:
    """Shards that become a file."""

    numbers: range

    @property
    def name(self) -> str:
        """Title for error messages."""
        return f"the file of shards {self.numbers[0]:06d} to {self.numbers[-1]:06d}"


def compute_piece(piece: ShardJob | Merge, directory: Path, features: Features, key: str) -> tuple[int, int] | None:
    """Compute a shard (returns its number and bytes), or merge a file."""
    if isinstance(piece, Merge):
        merge_shards(directory, piece.numbers)
        return None
    return piece.number, compute_shard(piece, directory, features, key)


def compute_missing(
    directory: Path, jobs: Sequence[ShardJob], finished: Finished, features: Features, key: str, map_pieces: MapPieces
) -> Iterator[int]:
    """Compute `jobs` except `finished`; yield the number of each.

    Numbers of jobs are consecutive. A file is written as soon as its shards are there, so there are few small files at
    once.
    """
    compute = functools.partial(compute_piece, directory=directory, features=features, key=key)
    sizes = dict(finished.num_bytes)
    merges: deque[Merge] = deque()
    begin = end = num_bytes = 0  # of the shards of the next file, places in `jobs`

    def form_files() -> None:
        """Form files of the shards whose sizes are known."""
        nonlocal begin, end, num_bytes
        while end < len(jobs) and jobs[end].number in sizes:
            num_bytes += sizes[jobs[end].data_of]
            end += 1
            if num_bytes >= FILE_BYTES or end == len(jobs):
                merges.extend(_form_file(directory, range(jobs[begin].number, jobs[end - 1].number + 1), finished))
                begin, num_bytes = end, 0

    def pieces() -> Iterator[ShardJob | Merge]:
        for job in jobs:
            while merges:
                yield merges.popleft()
            if job.number not in finished.num_bytes:
                yield job

    form_files()
    for done in map_pieces(compute, pieces()):
        if done:
            sizes.update([done])
            form_files()
            yield done[0]
    for _ in map_pieces(compute, merges):
        pass
    if features.storage == "flac":  # who reads audio computes as they say
        write_feature_settings(directory, dataclasses.replace(features, num_jobs=0, executor="local"))


def _form_file(directory: Path, numbers: range, finished: Finished) -> list[Merge]:
    """Return the merge that makes a file; split finished files with other borders."""
    if finished.files.get(numbers[0]) == numbers:
        return []
    for number in numbers:
        if len(finished.files.get(number, ())) > 1 and (header := read_header(directory, number)):
            split_file(directory, header, header.numbers)
    return [Merge(numbers)] if len(numbers) > 1 else []
