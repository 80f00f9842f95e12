"""Digests of file contents, cached by size, times and inode.

The known digests are in ``{work}/.stages/contents.npy``, 40 bytes a file. The key hashes name, size, times and inode:
with a million known files, a changed file has a known key once in 10^13 times. It includes the change time of the
inode, which no program can set back, so a byte changed in place is noticed even if size and modification time are the
same.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import digest_of, write_beside
from asrtool.log import progress
from asrtool.recipe.stage import lies_in

CACHE = ".stages/contents.npy"
ROW = [("key", "u8"), ("digest", "V32")]
YOUNG_NS = 2 * 10**9  # a file this young may change again within one clock tick of its file system
LOOKUP_BATCH = 1024  # files that are looked up at once
SILENT_S = 5.0  # seconds of reading without a log line
NOTHING = "nothing"  # digest of a link to nowhere, and of a file that is gone or cannot be read


@functools.cache
def contents_of(work: Path) -> Contents:
    """Return the digests of a work directory, one shared object for each."""
    return Contents(work)


class Contents:
    """Digests of files and folders of the work directory `work`, or outside."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._bases = {f"{os.path.abspath(work)}/", f"{os.path.realpath(work)}/"}
        self._known = _load(work / CACHE)

    def digest(self, path: str) -> str:
        """Return a digest of names and contents of files at or below `path`.

        Links are followed; a link to a file of the work directory counts as the name of that file.
        """
        base = str(self._work / path)
        files = [base] if os.path.isfile(base) else list(_below(base))
        digest = hashlib.sha256()
        for file, file_digest in zip(files, self._digests(files, path), strict=True):
            name = file[len(base) + 1 :] or "."
            digest.update(f"{name}\0{file_digest}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()[:16]

    def of_files(self, paths: Collection[str], what: str) -> Iterator[str]:
        """Yield the digest of each of `paths`, in order; links are followed.

        `what` is for the log.
        """
        files = [os.path.join(self._work, path) for path in paths]
        return self._digests([os.path.realpath(file) if os.path.islink(file) else file for file in files], what)

    def outside(self, paths: Iterable[str], formerly: str, folders: Collection[str]) -> Iterator[str]:
        """Yield the `paths` that are in none of these `folders` of the work directory.

        Paths in the work directory are relative to it, also if it was `formerly` elsewhere ('' for nowhere).
        """
        for path in map(os.path.abspath, paths):
            moved = path[len(formerly) + 1 :] if formerly and path.startswith(f"{formerly}/") else ""
            place = self._place_inside(path) or moved
            if not any(lies_in(place, folder) for folder in folders):
                yield place or path

    def _digests(self, files: list[str], what: str) -> Iterator[str]:
        """Yield the digest of each file, with progress after SILENT_S; update the cache."""
        new: dict[int, bytes] = {}
        end_s = time.monotonic() + SILENT_S
        digests = self._look_up_or_read(files, new)
        try:
            for done, digest in enumerate(digests, 1):
                yield digest
                if time.monotonic() > end_s:
                    text = f"{what}: read {len(files):,} files for changes"
                    yield from progress(digests, text, len(files) - done, "file")
        finally:  # an interrupted command keeps its digests
            if new:
                self._save(new)

    def _look_up_or_read(self, files: list[str], new: dict[int, bytes]) -> Iterator[str]:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for start in range(0, len(files), LOOKUP_BATCH):
                found = [self._look_up(file) for file in files[start : start + LOOKUP_BATCH]]
                reading = threads.map(_read, (unread for _, *unread in found if unread))
                for digest, *unread in found:
                    if unread:
                        digest, key = next(reading)
                        if key:
                            new[key] = bytes.fromhex(digest)
                    yield digest

    def _look_up(self, path: str) -> tuple[str, ...]:
        """Return the digest of a file if known, else '', its path and name in the cache."""
        folder, base = os.path.split(path)
        real = os.path.join(_real(folder), base)  # read once, even if found by several links
        name = self._place_inside(real) or real
        if os.path.islink(path) and (target := self._place_inside(os.path.realpath(path))):
            return (f"link to {target}",)
        try:
            known = self._known.get(_key(name, os.stat(path)))
        except OSError:
            return (NOTHING,)
        return (known.hex(),) if known else ("", path, name)

    def _place_inside(self, path: str) -> str:
        """Return an absolute path relative to the work directory, '' if it is outside."""
        return next((path[len(base) :] for base in self._bases if path.startswith(base)), "")

    def _save(self, new: dict[int, bytes]) -> None:
        """Add `new` digests to the file, which another process may have written meanwhile."""
        import numpy as np

        self._known = {**_load(self._work / CACHE), **new}
        rows = np.empty(len(self._known), ROW)
        rows["key"] = list(self._known)
        rows["digest"] = np.frombuffer(b"".join(self._known.values()), "V32")
        with contextlib.suppress(AsrtoolError, OSError), write_beside(self._work / CACHE) as temporary:
            np.save(temporary, rows)  # fails for a read-only work folder


def _load(path: Path) -> dict[int, bytes]:
    """Return key -> digest from the cache file; empty if it is missing or broken."""
    if not path.exists():  # lets `asrtool run --list` skip importing NumPy
        return {}
    import numpy as np

    with contextlib.suppress(OSError, ValueError, EOFError, IndexError):
        rows = np.load(path)
        return dict(zip(rows["key"].tolist(), rows["digest"].tolist(), strict=True))
    return {}


def _below(folder: str) -> Iterator[str]:
    """Yield the files below `folder` in the order of their paths."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(f"{entry.name}/" if _is_folder(entry) else entry.name for entry in os.scandir(folder))
    for name in names:  # folders sort with their slash, as the paths of their files do
        yield from _below(f"{folder}/{name[:-1]}") if name.endswith("/") else [f"{folder}/{name}"]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # circular links
        return False


@functools.lru_cache(LOOKUP_BATCH)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def _key(name: str, status: os.stat_result) -> int:
    stamp = f"{name}\0{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
    return int.from_bytes(hashlib.blake2b(stamp.encode(errors="surrogateescape"), digest_size=8).digest(), "big")


def _read(path_and_name: tuple[str, str]) -> tuple[str, int]:
    """Return digest and key of a file; key 0 if it changes meanwhile or is unreadable."""
    path, name = path_and_name
    now_ns = time.time_ns()
    try:
        key = _key(name, os.stat(path))
        digest = digest_of(Path(path))
        after = os.stat(path)
    except (OSError, AsrtoolError):
        return NOTHING, 0
    old = max(after.st_mtime_ns, after.st_ctime_ns) < now_ns - YOUNG_NS
    return digest, key if old and _key(name, after) == key else 0
