"""Writing files so that nothing half-written is ever taken for finished."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from asrtool.errors import AsrtoolError


@contextlib.contextmanager
def write_beside(path: Path | str) -> Iterator[Path]:
    """Yield a temporary name beside `path`; on success it replaces `path` in one step.

    The caller creates the file (or directory) under the yielded name. The name keeps the suffixes of `path`, because
    writers choose their format by them. On any exception the temporary is removed and `path` stays as it was; what a
    killed process left beside it is removed by the next one. Raises AsrtoolError when the disk is full.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    temporary = path.with_name(f".{os.getpid()}.tmp.{path.name}")
    try:
        yield temporary
        _replace(temporary, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise disk_full(path, error) from error
        raise
    finally:
        _remove(temporary)


@contextlib.contextmanager
def write_folder(path: Path | str, *signs: str) -> Iterator[Path]:
    """`write_beside` for a folder: yield a new one that on success replaces `path`.

    `signs` are patterns, one of which matches something in each folder of this kind: one that holds files but none of
    these is a person's own, and AsrtoolError is raised instead of deleting it.
    """
    path = Path(path)
    here = Path.cwd()
    if path.resolve() in (here, *here.parents):
        raise AsrtoolError(f"{path}: the current folder cannot be written anew", "name a folder below it")
    known = itertools.chain.from_iterable(path.glob(sign) for sign in signs)
    if path.is_dir() and any(path.iterdir()) and not any(known):
        raise AsrtoolError(
            f"{path}: holds other files and would be replaced, expected a new folder or one with {', '.join(signs)}",
            "choose another folder",
        )
    with write_beside(path) as temporary:
        temporary.mkdir()
        yield temporary


def move_aside(path: Path) -> Path:
    """Rename `path` to the first free `NAME.old-N` beside it, and return that."""
    number = 1
    while (old := path.with_name(f"{path.name}.old-{number}")).exists():
        number += 1
    path.rename(old)
    return old


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with write_beside(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def disk_full(path: Path | str, error: OSError) -> AsrtoolError:
    """The error for a write that found no room."""
    return AsrtoolError(
        f"{path}: cannot be written, {(error.strerror or 'no room').lower()}",
        "free some space or choose another place with --work, then run the same command again",
    )


def _replace(temporary: Path, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
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


def _remove_leftovers(path: Path) -> None:
    pattern = re.compile(r"\.(\d+)\.(tmp|old)\." + re.escape(path.name))
    for entry in os.scandir(path.parent):
        match = pattern.fullmatch(entry.name)
        if match and not _is_alive(int(match[1])):
            _remove(Path(entry.path))


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # alive, and another person's
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
