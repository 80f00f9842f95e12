"""Samples of utterances beside their features: `samples.NNNNNN.s16`.

They are 16-bit little-endian integers, utterance by utterance in storage order; durations give their numbers.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from asrtool.data.storage.flac import SCALE, Keep, to_integers
from asrtool.data.storage.index import RERUN, WINDOW_SHARDS, Utterance
from asrtool.data.storage.reader import shard_places
from asrtool.data.storage.shard_offsets import SAMPLES, Places, open_extent
from asrtool.errors import AsrtoolError

TYPE = np.dtype("<i2")


@contextmanager
def keeping_samples(directory: Path, number: int) -> Iterator[Keep]:
    """Yield what keeps the samples of the next utterance of the shard `number`."""
    with open(directory / SAMPLES.format(number), "wb") as file:

        def keep(_: Utterance, samples_S: np.ndarray) -> None:
            file.write(to_integers(samples_S).tobytes())

        yield keep


class SampleReader:
    """Reads the samples of the utterances of `directory`, whose index is `index`."""

    def __init__(self, directory: Path, index: Sequence[Utterance], rate_hz: int) -> None:
        self._first, _ = shard_places(index)
        open_one = functools.partial(_open, directory, Places(directory), index, self._first, rate_hz)
        self._shard = functools.lru_cache(2 * WINDOW_SHARDS)(open_one)

    def read(self, i: int) -> np.ndarray:
        """Return samples of utterance `i`, float32 in [-1, 1].

        Raises AsrtoolError naming the file if it is missing or does not fit the index.
        """
        place = bisect.bisect_right(self._first, i) - 1
        samples, ends = self._shard(place)
        begin, end = ends[i - self._first[place] : i - self._first[place] + 2].tolist()
        return samples[begin:end].astype(np.float32) / SCALE


def _open(
    directory: Path, places: Places, index: Sequence[Utterance], first: Sequence[int], rate_hz: int, place: int
) -> tuple[np.ndarray, np.ndarray]:
    """The samples of a shard, mapped, and where its utterances end, after a 0."""
    behind = first[place + 1] if place + 1 < len(first) else len(index)
    utterances = index[first[place] : behind]
    span = places[utterances[0].shard].samples
    path = directory / SAMPLES.format(span.file)
    try:
        extent = open_extent(path, span.begin, span.end)
        shape = (extent.size // TYPE.itemsize,)
        with extent.open() as file:
            samples = np.memmap(file, TYPE, "r", extent.begin, shape).view(np.ndarray)
    except (OSError, ValueError) as error:
        raise AsrtoolError(f"{path} cannot be read: {error}", RERUN) from error
    ends = np.cumsum([0, *(round(utterance.duration_s * rate_hz) for utterance in utterances)])
    if len(samples) != ends[-1]:
        raise AsrtoolError(f"{path} has {len(samples)} samples, index.jsonl says {ends[-1]}", RERUN)
    return samples, ends
