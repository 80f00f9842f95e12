"""Find releases in configured folders and tar files, and the files in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from asrtool.errors import AsrtoolError
from asrtool.local.corpus import Release
from asrtool.local.releases.tars import is_tar, unpack
from asrtool.url import as_url

MANIFESTS = (".csv", ".tsv", ".jsonl", ".json")  # files that stand for a folder of data
IN_COLUMNS = (".parquet", ".arrow")  # with audio in them
CUTS = ".jsonl.gz"  # those of lhotse


def find_release(release: Release, configured: Sequence[str], unpacked: Path) -> list[Path]:
    """Return the absolute folders of `release`, or its URL; tar files are unpacked.

    Raises AsrtoolError if one is missing, or if they hold something else.
    """
    places = [_open(release, path, unpacked) for path in configured]
    for pattern in release.holds:
        if not any(_holds(place, pattern) for place in places):
            tars = any(_holds(place, tar) for place in places for tar in ("*.tar", "*.tgz", "*.tar.gz"))
            raise AsrtoolError(
                f"paths.{release.key}: {' and '.join(configured)} {'holds' if len(places) == 1 else 'hold'} no"
                f" {pattern}, expected the layout of {release.name} ({release.title})",
                f"it holds tar files: set paths.{release.key} to a list of them"
                if tars
                else f"unpack the release whole and set paths.{release.key} to its top folder",
            )
    return places


def _open(release: Release, configured: str, unpacked: Path) -> Path:
    if as_url(configured) and release.is_one_folder:
        return Path(configured)
    path = Path(configured).expanduser().absolute()
    if path.is_dir():
        return path
    if is_tar(path) and not release.is_one_folder:
        return unpack(path, unpacked)
    if release.is_one_folder and path.is_file() and path.name.lower().endswith((*MANIFESTS, *IN_COLUMNS, CUTS)):
        return path
    state = "is a file" if path.exists() else "does not exist"
    files = ", ".join((*MANIFESTS, *IN_COLUMNS, CUTS))
    expected = f"the folder or manifest ({files})" if release.is_one_folder else "a folder or tar file"
    raise AsrtoolError(
        f"paths.{release.key}: {path} {state}, expected {expected} of {release.name} ({release.title})",
        f"set paths.{release.key} to where the release is",
    )


def _holds(folder: Path, pattern: str) -> bool:
    return next(find_files(folder, pattern), None) is not None


def find_file(corpus: Path, release: Release, pattern: str) -> Path:
    """Return the first file of `release` that matches; AsrtoolError for none."""
    path = next(find_files(corpus / release.name, pattern), None)
    if path is None:
        raise AsrtoolError(
            f"{corpus / release.name}: no {pattern} in it", f"unpack the release whole, see paths.{release.key}"
        )
    return path


def find_files(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield files under `folder` whose path ends in `pattern`, sorted by folder.

    Names that begin with a dot are skipped. Case is ignored (SW02001.SPH). Links are followed, which pathlib's **
    does not do.
    """
    pattern, seen = pattern.lower(), set()
    for here, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        names = [name for name in names if not name.startswith(".")]  # as macOS leaves ._NAME on the disks of others
        yield from (Path(here, name) for name in sorted(names) if PurePath(here.lower(), name.lower()).match(pattern))


def by_stem(folder: Path, pattern: str) -> dict[str, Path]:
    """Name without suffix, in lower case -> file, as find_files."""
    return {path.stem.lower(): path for path in find_files(folder, pattern)}
