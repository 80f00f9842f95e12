"""Disk cache for the files of feature sets on a server.

A folder that stands for a set has `remote.json` with its URL (features.py). Parts of shard files are fetched into its
`.fetched`. Processes share it: one of them fetches a file, under a lock, and renames it when it is whole. If the cache
is larger than allowed, the least recently used files are removed.

The version that was fetched first is kept (`NAME.version`) after eviction: another version is refused.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

from asrtool.data.remote import transfer
from asrtool.data.remote.transfer import Changed, CutShort, Missing, Version
from asrtool.errors import AsrtoolError
from asrtool.files import exclusive, write_beside, write_text
from asrtool.url import join

ABOUT = "remote.json"
FETCHED = ".fetched"
VERSION = ".version"
CHECK_S = 60.0  # least seconds between two checks that the set is unchanged


def default_cache() -> Path:
    """Return the folder asrtool of the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME", "") or "~/.cache").expanduser() / "asrtool"


@dataclass
class CachedSet:
    """A set on a server and the folder `path` that stands for it."""

    path: Path
    url: str
    versions: Mapping[str, Version]  # name -> version of its small files
    cache: Path  # shared by all sets
    cache_bytes: int  # limit for the fetched files of all sets
    _checked_s: float = field(default_factory=time.monotonic)

    def open(self, name: str, begin: int = 0, end: int | None = None) -> BinaryIO:
        """Open a byte range of a file; fetch it unless it is cached.

        Raises AsrtoolError if the server does not answer or refuses, lacks the file or a part of it, has another
        version, or the disk is full.
        """
        part = name if end is None else f"{name}.{begin}-{end}"
        place = self.path / FETCHED / part
        with contextlib.suppress(FileNotFoundError):
            return _used(place)
        with exclusive(place.with_name(f".lock.{part}")):
            with contextlib.suppress(FileNotFoundError):  # another process has fetched it meanwhile
                return _used(place)
            return self._fetch(name, place, begin, end)

    def _fetch(self, name: str, place: Path, begin: int, end: int | None) -> BinaryIO:
        self._check_versions()
        record = place.with_name(name + VERSION)
        known = _read_version(record)
        with self._unchanged(name), write_beside(place) as temporary:
            with temporary.open("wb") as file:
                version = transfer.fetch(join(self.url, name), file.write, begin, end, known)
            opened = temporary.open("rb")
        if not known:
            write_text(record, json.dumps(asdict(version)) + "\n")
        evict_files(self.cache, self.cache_bytes, place)
        return opened

    def _check_versions(self) -> None:
        """Check that the set has not changed since training began."""
        if time.monotonic() - self._checked_s < CHECK_S:
            return
        self._checked_s = time.monotonic()
        for name, version in self.versions.items():
            found = transfer.version_of(join(self.url, name))
            with self._unchanged(name):
                if found != version:
                    raise Changed(f"{join(self.url, name)}: is {found or 'gone'}, was {version}")

    @contextlib.contextmanager
    def _unchanged(self, name: str) -> Iterator[None]:
        try:
            yield
        except (Missing, CutShort) as error:
            raise AsrtoolError(str(error), "copy the features there again") from error
        except Changed as error:
            raise AsrtoolError(
                f"{join(self.url, name)}: changed on the server while it was in use ({error})",
                f"put other features at another address; to read the current features, remove {self.path.parent}",
            ) from error


@functools.lru_cache(maxsize=64)
def cached_set(path: Path) -> CachedSet | None:
    """Return the remote set that the folder `path` stands for, or None."""
    try:
        about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
    except OSError:
        return None
    versions = {name: Version(**version) for name, version in about["versions"].items()}
    return CachedSet(path, about["url"], versions, Path(about["cache"]), int(about["cache_gib"] * 2**30))


def evict_files(cache: Path, max_bytes: int, but: Path) -> None:
    """Remove least recently used files of `cache` down to `max_bytes`, except one."""
    found = []
    for folder in (*cache.glob(f"*/{FETCHED}"), *cache.glob(f"*/*/{FETCHED}")):
        for entry in os.scandir(folder):
            if not entry.name.startswith(".") and not entry.name.endswith(VERSION):
                with contextlib.suppress(FileNotFoundError):
                    found.append((entry.stat().st_mtime_ns, entry.stat().st_size, Path(entry.path)))
    left = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if left <= max_bytes:
            return
        if path != but:
            path.unlink(missing_ok=True)
            left -= size


def _used(place: Path) -> BinaryIO:
    opened = place.open("rb")
    with contextlib.suppress(FileNotFoundError):
        os.utime(place)
    return opened


def _read_version(path: Path) -> Version | None:
    try:
        return Version(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
