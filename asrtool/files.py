"""Write files atomically, and lock folders for one process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from asrtool.errors import AsrtoolError

LOCK = ".lock"  # lock file of a folder that one process holds
MARK = ".asrtool"  # in a folder: the files there that asrtool has written, a name as JSON a line, maybe NUL and digest
STAGES = ".stages"  # in the work folder of `asrtool run`: what was done
UNMARKED = frozenset({LOCK, MARK, ".DS_Store"})  # files that may be deleted without a mark
DIGESTED_BYTES = 2**20  # of a text; a stage may write gigabytes
ENDING_S = 10.0  # longest time that children outlive a killed process
ENDING_POLL_S = 0.05
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of a disk without room
_LEFTOVER = re.compile(r"\.(?P<process>\d+)\.(tmp|old)\.(?P<name>.*)", re.DOTALL)


@contextlib.contextmanager
def write_beside(path: Path | str) -> Iterator[Path]:
    """Yield a temporary name beside `path`; on success it replaces `path` in one step.

    The caller creates the file (or link) under the yielded name. The name keeps the suffixes of `path`, because
    writers choose their format by them. On any exception the temporary is removed and `path` stays as it was; what a
    killed process left beside it is removed by the next one. Raises AsrtoolError if `path` is a folder or cannot be
    written, and if the disk is full.
    """
    check_file_name(path)
    with _beside(Path(path)) as temporary:
        yield temporary


def check_file_name(path: Path | str) -> None:
    """Raise AsrtoolError if `path` is a folder; a link to one can be replaced."""
    if os.path.isdir(path) and not os.path.islink(path):
        raise AsrtoolError(f"{path}: is a folder, expected a file name", "name a file in it or another place")


def make_folder_of(path: Path) -> None:
    """Make the folder of `path`; AsrtoolError if it cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, path.parent, error) from error


def check_writable(path: Path) -> None:
    """Raise AsrtoolError if `path` cannot be written, in the nearest folder there is."""
    folder = next(folder for folder in path.absolute().parents if os.path.exists(folder))
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(path, folder, error) from error


def _unwritable(path: Path, folder: Path, error: OSError) -> AsrtoolError:
    no_folder = isinstance(error, FileExistsError | NotADirectoryError)
    reason = " is not a folder" if no_folder else f": {_reason(error)}"
    return AsrtoolError(f"{path}: cannot be written, {folder}{reason}", "choose another place")


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
def write_folder(path: Path | str, *signs: str, is_cache: bool = False) -> Iterator[Path]:
    """Yield a new folder that replaces `path` on success, as `write_beside`.

    Raises AsrtoolError as `check_own`. A cache is replaced even if its texts have changed.
    """
    path = Path(path)
    check_own(path, signs)
    with _beside(path) as temporary:
        temporary.mkdir()
        yield temporary
        _mark_all(temporary, is_digested=not is_cache)


@contextlib.contextmanager
def write_in_parts(path: Path, *signs: str) -> Iterator[Path]:
    """Write a folder over several runs: after a failure the next run finds the parts.

    It also finds the content of `path`, which stays until all is written. Raises AsrtoolError if another process
    writes it.
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
            _mark_all(parts, is_digested=False)
            _replace(parts, path)
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(path, error) from error
        raise


def parts_of(path: Path) -> Path:
    """Return the folder that `write_in_parts` writes to."""
    return path.with_name(f".part.{path.name}")


def check_own(path: Path, signs: Sequence[str]) -> None:
    """Raise AsrtoolError unless `path` is new, empty, or may be replaced.

    A folder may be replaced if it matches one of the patterns `signs` and holds only files that asrtool wrote. Raises
    AsrtoolError too if it cannot be written.
    """
    if path.exists() and not path.is_dir():
        raise AsrtoolError(f"{path}: is no folder, expected one to write", "name another place")
    check_writable(path)
    here = Path.cwd()
    if path.resolve() in (here, *here.parents):
        raise AsrtoolError(f"{path}: the current folder cannot be replaced", "name a folder below it")
    known = itertools.chain.from_iterable(path.glob(sign) for sign in signs)
    if path.is_dir() and any(each.name not in UNMARKED for each in path.iterdir()) and not any(known):
        raise AsrtoolError(
            f"{path}: holds other files and would be replaced, expected a new folder or one with {', '.join(signs)}",
            "choose another folder",
        )
    if other := next(foreign_files(path), None):
        name = other.relative_to(os.path.abspath(path))
        what = f"{path}: would be replaced, and asrtool did not write {name} in it, or it was edited since"
        raise AsrtoolError(what, "choose another folder, or move that file")


def check_files(*paths: Path) -> None:
    """Raise AsrtoolError if one of `paths` exists and asrtool did not write it so."""
    marked = functools.cache(_marked)
    for path in paths:
        check_file_name(path)
        if next(foreign_files(path, marked), None):
            what = f"{path}: exists, and would be replaced although asrtool did not write it, or it was edited since"
            raise AsrtoolError(what, "choose another place, or move that file")


@contextlib.contextmanager
def writing(*paths: Path) -> Iterator[None]:
    """Check files that a user names before they are written, and mark them after."""
    check_files(*paths)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # of a full disk, say, which is reported already
            mark_files(*filter(os.path.lexists, paths))
        raise
    mark_files(*filter(os.path.lexists, paths))


def mark_files(*paths: Path, are_written: bool = True) -> None:
    """Note that asrtool writes `paths`, each in the file MARK of its folder.

    Files that `are_written` are not asrtool's any more once they are edited.
    """
    for folder in {path.parent for path in paths}:
        if _predates_mark(folder):
            continue
        with open(folder / MARK, "a+", encoding="ascii", errors="replace") as file:
            file.seek(0)
            known = f"\n{file.read()}"
            files = [path for path in paths if path.parent == folder]
            lines = {_format_mark(path.name, _digest(path) if are_written else "") for path in files}
            file.writelines(sorted(line for line in lines if f"\n{line}" not in known))


def foreign_files(path: Path, marked: Callable[[Path], Mapping[str, set[str]]] | None = None) -> Iterator[Path]:
    """Yield absolute paths of files at or below `path` that asrtool did not write so.

    `marked` keeps the marks of folders from call to call.
    """
    path, marked = Path(os.path.abspath(path)), marked or functools.cache(_marked)
    if any(_predates_mark(folder) for folder in path.parents):
        return
    alone = [(path.parent, [path.name] if os.path.lexists(path) else [])]
    for folder, files in _folders_below(path) if path.is_dir() else alone:
        for file in (folder / name for name in files):
            noted = (marked(above).get(str(file.relative_to(above)), ()) for above in file.parents)
            if not any("" in digests or (digests and _digest(file) in digests) for digests in noted):
                yield file


def _mark_all(path: Path, is_digested: bool) -> None:
    """Note in `path` that asrtool wrote all below it."""
    files = sorted(folder / name for folder, names in _folders_below(path) for name in names)
    lines = [_format_mark(str(file.relative_to(path)), _digest(file) if is_digested else "") for file in files]
    (path / MARK).write_text("".join(lines), encoding="ascii")


def _format_mark(name: str, digest: str) -> str:
    return json.dumps(f"{name}\0{digest}" if digest else name) + "\n"


def _marked(folder: Path) -> Mapping[str, set[str]]:
    """Return the files in or below `folder` that its MARK lists, and digests of each.

    An empty digest stands for any content.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    try:
        for line in (folder / MARK).read_text(encoding="ascii").splitlines():
            name, _, digest = json.loads(line).partition("\0")
            found[name].add(digest)
    except (OSError, ValueError):
        return {}
    return {name: digests - {""} or digests for name, digests in found.items()}


def _digest(path: Path) -> str:
    """Return a digest of a text; empty for a link or a file that nobody edits.

    It is of the size and the first bytes, so that a copy has the same.
    """
    if path.is_symlink() or not path.is_file():
        return ""
    with open(path, "rb") as file:
        start = file.read(io.DEFAULT_BUFFER_SIZE)
        if b"\0" in start or b"\xff" in start:  # no text in UTF-8
            return ""
        start += file.read(DIGESTED_BYTES - len(start))
        return hashlib.sha256(b"%d\n%b" % (os.fstat(file.fileno()).st_size, start)).hexdigest()[:16]


def _predates_mark(folder: Path) -> bool:
    """Return whether `folder` is a work folder older than MARK."""
    return (folder / STAGES).is_dir() and not (folder / MARK).exists()


def _folders_below(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield `path` and folders below it with their file names; links are not followed."""
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
    """Remove temporary files of killed processes in `folder`, of `name` or of all."""
    for each in os.listdir(folder):
        match = each.startswith(".") and _LEFTOVER.fullmatch(each)
        if match and name in (None, match["name"]) and not _is_alive(int(match["process"])):
            remove(folder / each)


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with write_beside(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if it is missing or broken."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def digest_of(path: Path) -> str:
    """Return SHA-256 of a file in hex; AsrtoolError if it cannot be read."""
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
    """Hold ``{folder}/.lock``, which the system frees when this process ends.

    Raises AsrtoolError naming the process that holds it, what it runs (`what`), and what to do `otherwise`. If that
    process has just ended, the lock is waited for. A file system without locks holds none.
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
    """Lock the file; return the description of the process that already holds it."""
    until = time.monotonic() + ENDING_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return ""
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            if not holder.isdecimal() or _is_alive(int(holder)) or time.monotonic() > until:
                return holder or "unknown"
            time.sleep(ENDING_POLL_S)
        except OSError:  # a cluster's file system may be mounted without locks
            return ""


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; other processes and threads wait.

    A file system without locks holds none. The system frees the lock when this process ends.
    """
    make_folder_of(path)
    with open(path, "a") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def times_digest(path: Path) -> str:
    """Digest names, sizes and modification times of files at or below `path`.

    Links are followed.
    """
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
    """Return size in bytes and modification time in ns; zeros for a missing file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def disk_full(path: Path | str, error: OSError) -> AsrtoolError:
    """Return the error for a write to a full disk."""
    return AsrtoolError(
        f"{path}: cannot be written, {_reason(error)}",
        "free some space or choose another place, then run the same command again",
    )


def _reason(error: OSError) -> str:
    return (error.strerror or "no room").lower()


def _replace(temporary: Path, path: Path) -> None:
    if temporary.is_dir() and path.is_dir() and not path.is_symlink():
        # A directory cannot be replaced in one step: the old one steps aside first, and a reader finds one or none.
        old = path.with_name(f".{os.getpid()}.old.{path.name}")
        path.rename(old)
        temporary.rename(path)
        shutil.rmtree(old)
    elif path.is_symlink() and temporary.is_dir():
        path.unlink()  # a directory replaces the link, never its target
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


def open_memory_file(num_bytes: int) -> int:
    """Open a file without a name; it ends with the last process that maps it.

    Linux alone has such files. Its size is set at once: torch extends a shorter file as it maps it, and then writes a
    zero to its first byte, maybe over what another process has written.
    """
    file = os.memfd_create("asrtool")
    os.ftruncate(file, num_bytes)
    return file
