"""Digests of file contents, cached by size, times and inode.

The cache is ``{work}/.stages/contents.npy``. It includes the change time of the inode, which no program can set back:
a byte that is changed in place is noticed even if size and modification time are as before.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from asrtool.log import progress
from asrtool.recipe.digest_cache import DigestCache, Rows
from asrtool.recipe.stage import lies_in

CACHE = ".stages/contents.npy"
YOUNG_NS = 2 * 10**9  # a file changed so shortly ago may change again within one tick of the clock of its file system
BLOCK_BYTES = 2**20
AT_ONCE = 1024  # files that are looked up at once
SILENT_S = 5.0  # of reading without a line of log
NOTHING = "nothing"  # a link to nowhere, or a file that is gone or cannot be read, which who needs it will say


@functools.cache
def contents_of(work: Path) -> Contents:
    """Return the digests of a work directory, one shared object for each."""
    return Contents(work)


@dataclass
class _File:
    path: str
    name: str  # in the cache
    key: int = 0  # of name and stamp; 0: the cache is not to have it
    digest: str = ""  # '': it has to be read


class Contents:
    """Digests of files and folders of the work directory `work`, or outside."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._bases = {f"{os.path.abspath(work)}/", f"{os.path.realpath(work)}/"}
        self._cache = DigestCache(work / CACHE)

    def digest(self, path: str, only: Collection[str] = ()) -> str:
        """Digest names and contents of files at or below `path`.

        `only` restricts the file names. Links are followed; a link to a file of the work directory counts as the name
        of that file.
        """
        base = str(self._work / path)

        def files() -> Iterator[str]:
            return (file for file in _files(base) if not only or os.path.basename(file) in only)

        digest = hashlib.sha256()
        for file, of_file in self._each(files, path, "/".join([path, *sorted(only)])):
            name = file[len(base) + 1 :] or "."
            digest.update(f"{name}\0{of_file}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()[:16]

    def of_files(self, paths: Collection[str], what: str) -> Iterator[str]:
        """Yield the digest of each of `paths`, in order; links are followed.

        `what` is for the log. Other files in the cache stay.
        """

        def targets() -> Iterator[str]:
            files = (os.path.join(self._work, path) for path in paths)
            return (os.path.realpath(file) if os.path.islink(file) else file for file in files)

        return (of_file for _, of_file in self._each(targets, what, f"//{what}"))

    def outside(self, paths: Iterable[str], formerly: str, folders: Collection[str]) -> Iterator[str]:
        """Yield the `paths` that are in none of these `folders` of the work directory.

        Paths in the work directory are relative to it, also if it was `formerly` elsewhere ('' for nowhere).
        """
        for path in map(os.path.abspath, paths):
            moved = path[len(formerly) + 1 :] if formerly and path.startswith(f"{formerly}/") else ""
            place = self._place_inside(path) or moved
            if not any(lies_in(place, folder) for folder in folders):
                yield place or path

    def _each(self, files: Callable[[], Iterable[str]], what: str, group: str) -> Iterator[tuple[str, str]]:
        """Yield each of `files` with its digest in order, then update the cache."""
        rows, complete = Rows(), False
        try:
            for file in _in_sight(self._digested(files()), what, files):
                if file.key:
                    rows.add(file.key, file.digest)
                yield file.path, file.digest
            complete = True
        finally:  # what an interrupted command has read is not read again
            self._cache.add(rows, _hash(group), complete)

    def _digested(self, paths: Iterable[str]) -> Iterator[_File]:
        rest = iter(paths)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            while files := [self._look_at(path) for path in itertools.islice(rest, AT_ONCE)]:
                keyed = [file for file in files if file.key]
                for file, known in zip(keyed, self._cache.look_up([file.key for file in keyed]), strict=True):
                    file.digest = known or ""
                reading = threads.map(_read, [file for file in files if not file.digest])
                for file in files:
                    yield file if file.digest else next(reading)

    def _look_at(self, path: str) -> _File:
        folder, name = os.path.split(path)
        real = os.path.join(_real(folder), name)  # by whatever link it is found, it is read once
        name = self._place_inside(real) or real
        if os.path.islink(path) and (target := self._place_inside(os.path.realpath(path))):
            return _File(path, name, digest=f"link to {target}")
        try:
            return _File(path, name, key=_key(name, os.stat(path)))
        except OSError:
            return _File(path, name, digest=NOTHING)

    def _place_inside(self, path: str) -> str:
        """Return an absolute path relative to the work directory, '' if it is outside."""
        return next((path[len(base) :] for base in self._bases if path.startswith(base)), "")


def _in_sight(files: Iterator[_File], what: str, all_of_them: Callable[[], Iterable[str]]) -> Iterator[_File]:
    """`files`, with progress of what takes longer than SILENT_S to read."""
    end_s = time.monotonic() + SILENT_S
    for done, file in enumerate(files, 1):
        yield file
        if time.monotonic() > end_s:
            num = sum(1 for _ in all_of_them())
            yield from progress(files, f"{what}: read {num:,} files for changes", num - done, "file")


def _files(path: str) -> Iterator[str]:
    """The files at or below `path`, in the order of their paths."""
    return iter([path]) if os.path.isfile(path) else _below(path)


def _below(folder: str) -> Iterator[str]:
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(f"{entry.name}/" if _is_folder(entry) else entry.name for entry in os.scandir(folder))
    for name in names:  # a folder with its slash is where its files belong among those of the same beginning
        yield from _below(f"{folder}/{name[:-1]}") if name.endswith("/") else [f"{folder}/{name}"]


@functools.lru_cache(AT_ONCE)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a circle
        return False


def _key(name: str, status: os.stat_result) -> int:
    stamp = f"{name}\0{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
    return _hash(stamp)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest(), "big")


def _read(file: _File) -> _File:
    """Digest a file; without a key if it changes meanwhile or cannot be read."""
    now_ns = time.time_ns()
    try:
        digest = _read_digest(file.path)
        after = os.stat(file.path)
    except OSError:
        return _File(file.path, file.name, digest=NOTHING)
    old = max(after.st_mtime_ns, after.st_ctime_ns) < now_ns - YOUNG_NS
    key = file.key if old and _key(file.name, after) == file.key else 0
    return _File(file.path, file.name, key, digest)


def _read_digest(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as opened:
        while block := opened.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
