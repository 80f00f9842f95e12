"""The shards of a training set on a server, fetched in the order of the plan."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from asrtool.data.remote.prefetch import Ahead, parts_of_shards

NumbersOf = Callable[[int], Sequence[Sequence[int]]]  # an epoch: the shards of each of its windows


class ShardsAhead:
    """Prefetch of the shards of the next windows."""

    def __init__(self, directory: Path, numbers_of: NumbersOf, with_samples: bool) -> None:
        """`with_samples`: whether audio is read as well."""
        self._parts_of = parts_of_shards(directory, with_samples)
        self._numbers_of = functools.lru_cache(2)(numbers_of)
        self._ahead = Ahead(directory)
        self._at: tuple[int, int] | None = None

    def expect(self, epoch: int, window: int, num_more: int, num_epochs: int) -> None:
        """Prefetch for a batch, as BatchSource.expect."""
        if (epoch, window) == self._at:
            return
        self._at = epoch, window
        windows = itertools.islice(self._windows(epoch, window, num_epochs), num_more + 1)
        self._ahead.want(part for numbers in windows for number in numbers for part in self._parts_of(number))

    def close(self) -> None:
        """End the threads."""
        self._ahead.close()

    def _windows(self, epoch: int, window: int, num_epochs: int) -> Iterator[Sequence[int]]:
        yield from self._numbers_of(epoch)[window:]
        for following in range(epoch + 1, num_epochs):
            yield from self._numbers_of(following)
