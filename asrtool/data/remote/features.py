"""Features at a URL: a local folder for readers, filled by prefetching.

The folder has the small files of the sets; shard files are fetched as they are read (cache.py). Its name has the
version of the small files, so other features at the same URL get another folder, and running commands do not mix them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from asrtool.data.features.cmvn import CMVN
from asrtool.data.manifests.sets import FILE as SETS
from asrtool.data.manifests.sets import TRAIN, parse_sets
from asrtool.data.remote import transfer
from asrtool.data.remote.cache import ABOUT, cached_set, default_cache
from asrtool.data.remote.transfer import Changed, CutShort, Missing, Version
from asrtool.data.storage.index import INDEX, SETTINGS, read_feature_settings
from asrtool.data.storage.index_columns import FILES as COLUMNS
from asrtool.data.storage.shard_offsets import CUTS, DATA, SAMPLES, TABLE, ShardTable, Span, open_span
from asrtool.data.storage.transcripts import FILES as WORDS
from asrtool.data.storage.transcripts import TRANSCRIPTS
from asrtool.errors import AsrtoolError
from asrtool.files import exclusive, write_beside, write_text
from asrtool.settings.data import Remote
from asrtool.url import as_url, join

OF_ALL = (SETTINGS, SETS)
OF_SET = (INDEX, CMVN, TRANSCRIPTS, TABLE, SETTINGS, *COLUMNS, *WORDS)  # settings only if audio is kept
NEEDED = {OF_ALL: (SETTINGS, SETS), OF_SET: (INDEX, CMVN)}
Versions = Mapping[str, Version]  # name -> version of a file

NUM_THREADS = 4  # parts of files fetched at a time
Item = TypeVar("Item")
Part = tuple[str, Span]  # the name of a file, which has {} for its number, and what of it
NumbersOf = Callable[[int], Iterable[int]]  # window -> numbers of its shards; none after the last window


def open_features(place: Path, remote: Remote, wanted: Collection[str] | None = None) -> Path:
    """Return the folder for features at the URL `place`, or a path itself.

    The sets `wanted` can be read, all but the training set by default; the URL of a set stands for that set. Raises
    AsrtoolError if a file is missing that all features have, or a set, and as transfer.fetch.
    """
    url = as_url(place).rstrip("/")
    if not url:
        return place
    name = ""
    if transfer.version_of(join(url, SETS)) is None:
        url, _, name = url.rpartition("/")
    common_versions = _versions(url, OF_ALL)
    sets = parse_sets(transfer.read(join(url, SETS))[1].decode(errors="replace"), join(url, SETS)).names
    if name and name not in sets:
        raise AsrtoolError(f"{join(url, name)}: no set of features, expected one of {', '.join(sets)}", "name one")
    set_versions = {each: _versions(join(url, each), OF_SET) for each in sets}
    cache = Path(remote.cache_dir or default_cache()).expanduser().absolute()
    root = cache / f"{url.rpartition('/')[2]}-{_digest(url, common_versions, set_versions)}"
    _fetch_small(root, url, common_versions)
    for each in [name] if name else sets if wanted is None else wanted:
        if name or wanted is not None or each != TRAIN:
            _open_set(root / each, join(url, each), set_versions[each], cache, remote.cache_gib)
    return root / name


def _versions(url: str, names: tuple[str, ...]) -> Versions:
    """Return the versions of existing files."""
    found = {name: version for name in names if (version := transfer.version_of(join(url, name)))}
    for name in NEEDED[names]:
        if name not in found:
            what = f"{join(url, name)}: missing, expected the features of `asrtool features`"
            raise AsrtoolError(what, "copy the whole folder there, or correct the address")
    return found


def _open_set(path: Path, url: str, versions: Versions, cache: Path, cache_gib: float) -> None:
    _fetch_small(path, url, versions)
    signs = {name: asdict(versions[name]) for name in (INDEX, CMVN)}
    about = {"url": url, "versions": signs, "cache": str(cache), "cache_gib": cache_gib}
    write_text(path / ABOUT, json.dumps(about) + "\n")


def _fetch_small(folder: Path, url: str, versions: Versions) -> None:
    """Fetch the files of `versions` that the folder lacks."""
    for name, version in versions.items():
        with exclusive(folder / f".lock.{name.replace('/', '.')}"):
            if (folder / name).exists():
                continue
            try:
                with write_beside(folder / name) as temporary, temporary.open("wb") as file:
                    transfer.fetch(join(url, name), file.write, known=version)
            except (Missing, CutShort, Changed) as error:
                raise AsrtoolError(f"{error}", "wait until all is copied there, then run the command again") from error


def _digest(url: str, common_versions: Versions, set_versions: Mapping[str, Versions]) -> str:
    tables = [
        {name: asdict(version) for name, version in versions.items()}
        for versions in (common_versions, *set_versions.values())
    ]
    return hashlib.sha256(json.dumps([url, *tables], sort_keys=True).encode()).hexdigest()[:16]


class Prefetcher:
    """Threads that prefetch; on an error the reader fetches and raises it."""

    def __init__(self, directory: Path) -> None:
        """Prefetch for the set that this folder stands for."""
        self._directory = directory
        self._executor = ThreadPoolExecutor(NUM_THREADS, "ahead")
        self.waiting: list[Future[None]] = []  # parts in the queue

    def request(self, parts: Iterable[Part]) -> None:
        """Replace the queue of parts to fetch, in order."""
        for future in self.waiting:
            future.cancel()
        self.waiting = [self._executor.submit(_fetch, self._directory, part) for part in parts]

    def close(self) -> None:
        """End the threads after their current files."""
        self._executor.shutdown(cancel_futures=True)


def _fetch(directory: Path, part: Part) -> None:
    with contextlib.suppress(AsrtoolError, OSError):
        open_span(directory, *part)


def parts_of_shards(directory: Path, with_samples: bool = False) -> Callable[[int], list[Part]]:
    """Return a function from a shard's number to its files, samples if wanted."""
    data, table = DATA[read_feature_settings(directory.parent).storage], ShardTable(directory)

    def parts_of(number: int) -> list[Part]:
        ranges = table[number]
        samples = [(SAMPLES, ranges.samples)] if with_samples else []
        return [(CUTS, ranges.cuts), (data, ranges.data), *samples]

    return parts_of


def prefetching(
    directory: Path, items: Iterable[Item], window_of: Callable[[Item], int | None], numbers_of: NumbersOf
) -> Iterator[Item]:
    """Yield `items`; fetch the shards of the next window meanwhile.

    Does nothing if `directory` is not a remote set.
    """
    if not cached_set(directory):
        yield from items
        return
    parts_of, at = parts_of_shards(directory), -1
    with contextlib.closing(Prefetcher(directory)) as prefetcher:
        for item in items:
            window = window_of(item) or 0
            if window != at:
                at = window
                prefetcher.request(
                    part for number in (*numbers_of(at), *numbers_of(at + 1)) for part in parts_of(number)
                )
            yield item
