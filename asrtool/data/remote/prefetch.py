"""Fetching shards of a set on a server before they are read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from asrtool.data.remote.cache import cached_set
from asrtool.data.storage.index import read_feature_settings
from asrtool.data.storage.shard_offsets import CUTS, DATA, SAMPLES, Places, Span, open_span
from asrtool.errors import AsrtoolError

NUM_THREADS = 4  # parts of files fetched at a time
Item = TypeVar("Item")
Part = tuple[str, Span]  # the name of a file, which has {} for its number, and what of it
NumbersOf = Callable[[int], Iterable[int]]  # a window: the numbers of its shards; none behind the last one


class Ahead:
    """Threads that prefetch; on an error the reader fetches and raises it."""

    def __init__(self, directory: Path) -> None:
        """Prefetch for the set that this folder stands for."""
        self._directory = directory
        self._executor = ThreadPoolExecutor(NUM_THREADS, "ahead")
        self._waiting: list[Future[None]] = []

    def want(self, parts: Iterable[Part]) -> None:
        """Replace the queue of parts to fetch, in order."""
        for future in self._waiting:
            future.cancel()
        self._waiting = [self._executor.submit(_fetch, self._directory, part) for part in parts]

    def close(self) -> None:
        """End the threads, when each is through with its file."""
        self._executor.shutdown(cancel_futures=True)


def _fetch(directory: Path, part: Part) -> None:
    with contextlib.suppress(AsrtoolError, OSError):
        open_span(directory, *part)


def parts_of_shards(directory: Path, with_samples: bool = False) -> Callable[[int], list[Part]]:
    """Return a function from a shard's number to its files, samples if wanted."""
    data, places = DATA[read_feature_settings(directory.parent).storage], Places(directory)

    def parts_of(number: int) -> list[Part]:
        place = places[number]
        samples = [(SAMPLES, place.samples)] if with_samples else []
        return [(CUTS, place.cuts), (data, place.data), *samples]

    return parts_of


def reading_ahead(
    directory: Path, items: Iterable[Item], window_of: Callable[[Item], int | None], numbers_of: NumbersOf
) -> Iterator[Item]:
    """Yield `items`; fetch the shards of the next window meanwhile.

    Does nothing if `directory` is not a remote set.
    """
    if not cached_set(directory):
        yield from items
        return
    parts_of, at = parts_of_shards(directory), -1
    with contextlib.closing(Ahead(directory)) as ahead:
        for item in items:
            window = window_of(item) or 0
            if window != at:
                at = window
                ahead.want(part for number in (*numbers_of(at), *numbers_of(at + 1)) for part in parts_of(number))
            yield item
