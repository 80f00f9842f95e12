"""Samples of utterances beside their features: `samples.NNNNNN.s16`.

They are 16-bit little-endian integers, utterance by utterance in storage order; durations give their numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from asrtool.data.storage.index import RERUN, Utterance
from asrtool.data.storage.reader import OpenShards
from asrtool.data.storage.shard import SCALE, Keep, to_integers
from asrtool.data.storage.shard_offsets import SAMPLES, Place, open_span
from asrtool.errors import AsrtoolError

TYPE = np.dtype("<i2")


@contextmanager
def keeping_samples(directory: Path, number: int) -> Iterator[Keep]:
    """Yield what keeps the samples of the next utterance of the shard `number`."""
    with open(directory / SAMPLES.format(number), "wb") as file:
        yield lambda _, samples_S: file.write(to_integers(samples_S).tobytes())


class SampleReader:
    """Reads the samples of the utterances of `directory`, whose index is `index`."""

    def __init__(self, directory: Path, index: Sequence[Utterance], rate_hz: int) -> None:
        self._shards = OpenShards(directory, index, functools.partial(_open, directory, rate_hz))

    def read(self, i: int) -> np.ndarray:
        """Return samples of utterance `i`, float32 in [-1, 1].

        Raises AsrtoolError naming the file if it is missing or does not fit the index.
        """
        (samples, ends), place = self._shards.find(i)
        begin, end = ends[place : place + 2].tolist()
        return samples[begin:end].astype(np.float32) / SCALE


def _open(
    directory: Path, rate_hz: int, place: Place, utterances: Sequence[Utterance]
) -> tuple[np.ndarray, np.ndarray]:
    """The samples of a shard, mapped, and where its utterances end, after a 0."""
    path = directory / SAMPLES.format(place.samples.file)
    try:
        extent = open_span(directory, SAMPLES, place.samples)
        with extent.open() as file:
            shape = (extent.size // TYPE.itemsize,)
            samples = np.memmap(file, TYPE, "r", extent.begin, shape).view(np.ndarray)
    except (OSError, ValueError) as error:
        raise AsrtoolError(f"{path} cannot be read: {error}", RERUN) from error
    ends = np.cumsum([0, *(round(utterance.duration_s * rate_hz) for utterance in utterances)])
    if len(samples) != ends[-1]:
        raise AsrtoolError(f"{path} has {len(samples)} samples, index.jsonl says {ends[-1]}", RERUN)
    return samples, ends
