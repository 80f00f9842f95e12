"""Where releases lie: the configured ones are linked under one folder, after a look at their layout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from asrtool.errors import AsrtoolError
from local.corpus import Release


def find_release(release: Release, configured: str) -> Path:
    """The absolute folder of `release`. Raises AsrtoolError when it is not there or holds something else."""
    path = Path(configured).expanduser().absolute()
    if not path.is_dir():
        state = "is a file" if path.exists() else "does not exist"
        raise AsrtoolError(
            f"paths.{release.key}: {path} {state}, expected the folder of {release.name} ({release.title})",
            f"set paths.{release.key} to where the release is unpacked",
        )
    for pattern in release.holds:
        if next(find_files(path, pattern), None) is None:
            raise AsrtoolError(
                f"paths.{release.key}: {path} holds no {pattern}, expected the layout of {release.name}"
                f" ({release.title})",
                f"unpack the release whole and set paths.{release.key} to its top folder",
            )
    return path


def find_file(corpus: Path, release: Release, pattern: str) -> Path:
    """The first file of `release`, a folder of `corpus`, that matches `pattern`. Raises AsrtoolError for none."""
    path = next(find_files(corpus / release.name, pattern), None)
    if path is None:
        raise AsrtoolError(
            f"{corpus / release.name}: no {pattern} in it", f"unpack the release whole, see paths.{release.key}"
        )
    return path


def find_files(folder: Path, pattern: str) -> Iterator[Path]:
    """Files at any depth under `folder` whose path ends in `pattern`, sorted within a folder; links are followed.

    Discs of a release are often linked together from several places, and pathlib's ** passes such links by.
    """
    seen = set()
    for here, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        yield from (path for name in sorted(names) if (path := Path(here, name)).match(pattern))
