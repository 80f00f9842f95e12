"""Writing files so that nothing half-written is ever taken for finished, and folders that one process holds."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from asrtool.errors import AsrtoolError

LOCK = ".lock"  # of a folder that one process holds
MARK = ".asrtool"  # in a folder: the files there that asrtool has written, a name as JSON a line
STAGES = ".stages"  # in the work folder of `asrtool run`: what was done
UNMARKED = frozenset({LOCK, MARK, ".DS_Store"})  # files that nobody misses
ENDING_S = 10.0  # for which the children of a process that was killed may outlive it
ENDING_POLL_S = 0.05
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of a disk without room
_LEFTOVER = re.compile(r"\.(?P<process>\d+)\.(tmp|old)\.(?P<name>.*)", re.DOTALL)


@contextlib.contextmanager
def write_beside(path: Path | str) -> Iterator[Path]:
    """Yield a temporary name beside `path`; on success it replaces `path` in one step.

    The caller creates the file (or link) under the yielded name. The name keeps the suffixes of `path`, because
    writers choose their format by them. On any exception the temporary is removed and `path` stays as it was; what a
    killed process left beside it is removed by the next one. Raises AsrtoolError where `path` is a folder or cannot be
    written, and when the disk is full.
    """
    check_file_name(path)
    with _beside(Path(path)) as temporary:
        yield temporary


def check_file_name(path: Path | str) -> None:
    """AsrtoolError where `path` is a folder, whose place no file takes; a link to one is a name like any other."""
    if os.path.isdir(path) and not os.path.islink(path):
        raise AsrtoolError(f"{path}: is a folder, expected a file name", "name a file in it or another place")


def make_folder_of(path: Path) -> None:
    """Make the folder of `path` where there is none; raises AsrtoolError when it cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        no_folder = isinstance(error, FileExistsError | NotADirectoryError)
        reason = " is not a folder" if no_folder else f": {_reason(error)}"
        raise AsrtoolError(f"{path}: cannot be written, {path.parent}{reason}", "choose another place") from error


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    make_folder_of(path)
    remove_leftovers(path.parent, path.name)
    temporary = path.with_name(f".{os.getpid()}.tmp.{path.name}")
    try:
        yield temporary
        _replace(temporary, path)
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(path, error) from error
        if error.filename is not None and Path(error.filename) == temporary:
            raise AsrtoolError(f"{path}: cannot be written, {_reason(error)}", "choose another place") from error
        raise
    finally:
        remove(temporary)


@contextlib.contextmanager
def write_folder(path: Path | str, *signs: str) -> Iterator[Path]:
    """`write_beside` for a folder: yield a new one that on success replaces `path`.

    Raises AsrtoolError as `check_own`.
    """
    path = Path(path)
    check_own(path, signs)
    with _beside(path) as temporary:
        temporary.mkdir()
        yield temporary
        _mark_all(temporary)


@contextlib.contextmanager
def write_in_parts(path: Path, *signs: str) -> Iterator[Path]:
    """`write_folder` for what takes long: what is in the yielded folder when this fails, the next one finds there.

    It finds what `path` holds as well, which is that folder until all is written. One process at a time: raises
    AsrtoolError where another one is at it.
    """
    check_own(path, signs)
    parts = parts_of(path)
    make_folder_of(path)
    if path.is_dir() and not path.is_symlink() and not parts.exists():
        path.rename(parts)
    try:
        with locked(parts, "command", "choose another folder"):
            yield parts
            (parts / LOCK).unlink()
            _mark_all(parts)
            _replace(parts, path)
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(path, error) from error
        raise


def parts_of(path: Path) -> Path:
    """Where `write_in_parts` writes."""
    return path.with_name(f".part.{path.name}")


def check_own(path: Path, signs: Sequence[str]) -> None:
    """Raise AsrtoolError unless `path` is new, empty, or a folder that may be replaced.

    That is one of this kind, in which something matches one of the patterns `signs`, and all of which asrtool wrote.
    """
    if path.exists() and not path.is_dir():
        raise AsrtoolError(f"{path}: is no folder, expected one to write", "name another place")
    here = Path.cwd()
    if path.resolve() in (here, *here.parents):
        raise AsrtoolError(f"{path}: the current folder cannot be replaced", "name a folder below it")
    known = itertools.chain.from_iterable(path.glob(sign) for sign in signs)
    if path.is_dir() and any(each.name not in UNMARKED for each in path.iterdir()) and not any(known):
        raise AsrtoolError(
            f"{path}: holds other files and would be replaced, expected a new folder or one with {', '.join(signs)}",
            "choose another folder",
        )
    if other := next(not_own(path), None):
        what = f"{path}: would be replaced, and asrtool did not write {other.relative_to(os.path.abspath(path))} in it"
        raise AsrtoolError(what, "choose another folder, or move that file")


def check_files(*paths: Path) -> None:
    """Raise AsrtoolError if a file of `paths` is there and asrtool did not write it: nothing of a user is replaced."""
    for path in paths:
        check_file_name(path)
        if next(not_own(path), None):
            what = f"{path}: is there, and would be replaced although asrtool did not write it"
            raise AsrtoolError(what, "choose another place, or move that file")


@contextlib.contextmanager
def writing(*paths: Path) -> Iterator[None]:
    """Write files that a user names: `check_files` before what is inside, marked as asrtool's after it."""
    check_files(*paths)
    yield
    mark_files(*filter(os.path.lexists, paths))


def mark_files(*paths: Path) -> None:
    """Note that asrtool writes `paths`, each in the file MARK of its folder."""
    for folder in {path.parent for path in paths}:
        names = sorted({path.name for path in paths if path.parent == folder} - _marked(folder))
        if names and not _is_of_before(folder):
            with open(folder / MARK, "a", encoding="ascii") as file:
                file.write("".join(json.dumps(name) + "\n" for name in names))


def not_own(path: Path) -> Iterator[Path]:
    """The files at or below `path` that asrtool did not write, by their absolute paths."""
    path = Path(os.path.abspath(path))
    if any(_is_of_before(folder) for folder in path.parents):
        return
    known = {folder / name for folder in path.parents for name in _marked(folder)}
    if not path.is_dir():
        yield from {path} - known if os.path.lexists(path) else ()
        return
    for folder, files in _folders_below(path):
        known |= {folder / name for name in _marked(folder)}
        yield from (folder / name for name in files if folder / name not in known)


def _mark_all(path: Path) -> None:
    """Note in `path` that asrtool wrote all below it."""
    files = sorted(str((folder / name).relative_to(path)) for folder, names in _folders_below(path) for name in names)
    (path / MARK).write_text("".join(json.dumps(name) + "\n" for name in files), encoding="ascii")


def _marked(folder: Path) -> set[str]:
    """The files in `folder`, or below it, of which MARK says there that asrtool wrote them."""
    try:
        return set(map(json.loads, (folder / MARK).read_text(encoding="ascii").splitlines()))
    except (OSError, ValueError):
        return set()


def _is_of_before(folder: Path) -> bool:
    """Whether `folder` is a work folder of an asrtool that did not mark what it wrote yet."""
    return (folder / STAGES).is_dir() and not (folder / MARK).exists()


def _folders_below(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """`path` and each folder below it, with the names of the files and links in it; links are not followed."""
    for folder, folders, files in os.walk(path):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        yield Path(folder), [name for name in (*files, *links) if name not in UNMARKED and not _LEFTOVER.match(name)]


def move_aside(path: Path) -> Path:
    """Rename `path` to the first free `NAME.old-N` beside it, and return that."""
    number = 1
    while (old := path.with_name(f"{path.name}.old-{number}")).exists():
        number += 1
    path.rename(old)
    return old


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left in `folder` in place of the file or folder `name`, or of any."""
    for entry in os.scandir(folder):
        match = _LEFTOVER.fullmatch(entry.name)
        if match and name in (None, match["name"]) and not _is_alive(int(match["process"])):
            remove(Path(entry.path))


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with write_beside(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def digest_of(path: Path) -> str:
    """SHA-256 of a file in hex; AsrtoolError when it cannot be read."""
    try:
        with open(path, "rb") as file:
            digest = hashlib.sha256()
            while block := file.read(2**20):
                digest.update(block)
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", "run the stage that makes it first") from error
    return digest.hexdigest()


@contextlib.contextmanager
def locked(folder: Path, what: str, otherwise: str) -> Iterator[None]:
    """Hold ``{folder}/.lock``, which the system frees when this process ends, however it ends.

    Raises AsrtoolError naming the process that holds it; `what` is running there, and one may wait or do `otherwise`.
    Where that process has ended, a thread or a child of it is about to: the lock is waited for. Where the file system
    knows no locks, none is held.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "a+", encoding="ascii") as file:
        if holder := _hold(file):
            raise AsrtoolError(
                f"{folder}: another {what} is running there (process {holder})", f"wait for it, or {otherwise}"
            )
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _hold(file: TextIO) -> str:
    """Lock it; where it is locked, by a process that lives or for ENDING_S, what is said of that process there."""
    until = time.monotonic() + ENDING_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return ""
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            if not holder.isdecimal() or _lives(int(holder)) or time.monotonic() > until:
                return holder or "unknown"
            time.sleep(ENDING_POLL_S)
        except OSError:  # as of a cluster that was mounted without
            return ""


def _lives(process: int) -> bool:
    """Whether there is a process of this number here."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another person
        pass
    return True


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Inside, no other process or thread is that asked for the lock file `path`; others wait.

    But where the file system knows no locks. The system frees the lock when this process ends, however it ends.
    """
    make_folder_of(path)
    with open(path, "a") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def times_digest(path: Path) -> str:
    """Digest of names, sizes and modification times of the files at or below `path`; links are followed."""
    digest = hashlib.sha256()
    for name, size_bytes, time_ns in sorted(_files_below(path)):
        digest.update(f"{name}\0{size_bytes}\0{time_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def _files_below(path: Path) -> Iterator[tuple[str, int, int]]:
    if path.is_file():
        yield ("", *size_and_time(path))
    for folder, _, names in os.walk(path, followlinks=True):
        for name in names:
            file = Path(folder, name)
            yield (str(file.relative_to(path)), *size_and_time(file))


def size_and_time(path: Path) -> tuple[int, int]:
    """Size in bytes and modification time in ns; zeros for a link to nowhere or a file that is gone."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def disk_full(path: Path | str, error: OSError) -> AsrtoolError:
    """The error for a write that found no room."""
    return AsrtoolError(
        f"{path}: cannot be written, {_reason(error)}",
        "free some space or choose another place, then run the same command again",
    )


def _reason(error: OSError) -> str:
    return (error.strerror or "no room").lower()


def _replace(temporary: Path, path: Path) -> None:
    if temporary.is_dir() and path.is_dir() and not path.is_symlink():
        # A directory cannot be replaced in one step: the old one steps aside first, and a reader sees one or none.
        old = path.with_name(f".{os.getpid()}.old.{path.name}")
        path.rename(old)
        temporary.rename(path)
        shutil.rmtree(old)
    elif path.is_symlink() and temporary.is_dir():
        path.unlink()  # a directory takes the place of the link, never of what the link points to
        temporary.rename(path)
    else:
        temporary.replace(path)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # alive, and another person's
        return True
    return True


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
