"""Digests of what files hold, cached by size, times and inode: a file is read again only where one of these changed.

The cache is ``{work}/.stages/contents.json``. The time of the last change of an inode is among them, which no program
can set back: a byte that is changed in place is noticed though size and modification time are as before.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.log import progress

CACHE = ".stages/contents.json"
YOUNG_NS = 2 * 10**9  # a file changed so shortly ago may change again within one tick of the clock of its file system
BLOCK_BYTES = 2**20

Stamp = list[int]  # size in bytes, modification and change time in ns, inode
Digested = tuple[
    str, Stamp | None, str
]  # of a file: its name in the cache, its stamp where that may have it, its digest
SILENT_S = 5.0  # of reading without a line of log


@functools.cache
def contents_of(work: Path) -> Contents:
    """The digests of a work directory; one object for each, whose cache file is read once."""
    return Contents(work)


class Contents:
    """Digests of files and folders of the work directory `work`, or outside."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._cached = self._read()

    def digest(self, path: str, only: Collection[str] = ()) -> str:
        """Of the names and contents of the files at or below `path`, of those called one of `only` where that is given.

        Links are followed, but one to a file of the work directory stands for the name of that file: what it holds
        counts where it lies.
        """
        files = [file for file in _files(self._work / path) if not only or os.path.basename(file) in only]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            found = list(_in_sight(threads.map(self._of_file, files), path, len(files)))
        digest = hashlib.sha256()
        for file, (_, _, of_file) in sorted(zip(files, found, strict=True)):
            digest.update(f"{os.path.relpath(file, self._work / path)}\0{of_file}\n".encode(errors="surrogateescape"))
        self._remember(path, found, complete=not only)
        return digest.hexdigest()[:16]

    def of_files(self, paths: Collection[Path]) -> dict[Path, str]:
        """Of the contents of each of `paths`, or of what a link there leads to."""
        files = sorted(paths)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            targets = [os.path.realpath(file) if file.is_symlink() else str(file) for file in files]
            found = list(_in_sight(threads.map(self._of_file, targets), "audio", len(files)))
        self._remember("", found, complete=False)
        return {file: of_file for file, (_, _, of_file) in zip(files, found, strict=True)}

    def _of_file(self, file: str) -> Digested:
        """Its name in the cache, its stamp where the cache may have it, its digest."""
        name = os.path.relpath(file, self._work) if self._is_inside(os.path.abspath(file)) else os.path.abspath(file)
        if os.path.islink(file) and self._is_inside(os.path.realpath(file)):
            return name, None, f"link to {os.path.relpath(os.path.realpath(file), os.path.realpath(self._work))}"
        try:
            before = _stamp(file)
            if (cached := self._cached.get(name)) and cached[0] == before:
                return name, before, cached[1]
            now_ns = time.time_ns()
            of_file = _read_digest(file)
            kept = before == _stamp(file) and max(before[1:3]) < now_ns - YOUNG_NS
            return name, before if kept else None, of_file
        except OSError:  # a link to nowhere, or a file that is gone or cannot be read, which who needs it will say
            return name, None, "nothing"

    def _is_inside(self, path: str) -> bool:
        return any(path.startswith(f"{base}/") for base in {os.path.abspath(self._work), os.path.realpath(self._work)})

    def _read(self) -> dict[str, tuple[Stamp, str]]:
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):  # a broken cache is none
            found = json.loads((self._work / CACHE).read_text(encoding="utf-8"))
            return {name: (list(stamp), str(digest)) for name, (stamp, digest) in found.items()}
        return {}

    def _remember(self, path: str, found: list[Digested], complete: bool) -> None:
        """Write the cache where it changes; files below `path` that are gone leave it where `found` is `complete`."""
        new = {name: (stamp, digest) for name, stamp, digest in found if stamp is not None}
        there = {name for name, _, _ in found}
        gone = [name for name in self._cached if complete and name.startswith(f"{path}/") and name not in there]
        if not gone and all(self._cached.get(name) == entry for name, entry in new.items()):
            return
        self._cached = self._read() | self._cached | new  # a command that ran meanwhile may have digested others
        for name in gone:
            del self._cached[name]
        with contextlib.suppress(AsrtoolError, OSError):  # where another person's work is only looked at
            write_text(self._work / CACHE, json.dumps(self._cached))


def _in_sight(results: Iterator[Digested], path: str, num: int) -> Iterator[Digested]:
    """`results`, with progress of those of a folder that takes longer than SILENT_S to read."""
    end_s = time.monotonic() + SILENT_S
    for done, result in enumerate(results, 1):
        yield result
        if time.monotonic() > end_s:
            yield from progress(results, f"{path}: read {num:,} files for changes", num - done, "file")


def _files(path: Path) -> Iterator[str]:
    if path.is_file():
        yield str(path)
    for folder, _, names in os.walk(path, followlinks=True):
        yield from (os.path.join(folder, name) for name in names)


def _stamp(file: str) -> Stamp:
    status = os.stat(file)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _read_digest(file: str) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        while block := opened.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
