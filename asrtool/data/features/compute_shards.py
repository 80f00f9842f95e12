"""Compute the shards of a set, and merge them to files of FILE_BYTES.

A shard stays the unit of planning, of computing and of resuming. Which shards become a file depends on their sizes
alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from asrtool.data.features.extract import compute_shard
from asrtool.data.features.finished_shards import Finished
from asrtool.data.features.merge_shards import Merge, merge_shards, split_file
from asrtool.data.features.shard_plan import ShardJob
from asrtool.data.storage.index import write_feature_settings
from asrtool.data.storage.shard_manifest import read_header
from asrtool.data.workers.task import MapPieces
from asrtool.settings.data import Features

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
