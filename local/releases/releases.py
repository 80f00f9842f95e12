"""Link releases of configured folders and tar files, and find files in them."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import logging
import lzma
import math
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from asrtool.data.manifests.manifest import check_apart
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder, write_text
from asrtool.local.corpus import TEXT, CorpusInRoles, Release, known_releases, named_corpora
from asrtool.log import progress
from asrtool.settings import registry
from asrtool.settings.config import Place
from asrtool.settings.data import Data
from asrtool.url import as_url

MANIFESTS = (".csv", ".tsv", ".jsonl", ".json")  # files that replace a folder of data
IN_COLUMNS = (".parquet", ".arrow")  # with audio in them
CUTS = ".jsonl.gz"  # suffix of lhotse's manifests
PLACE = "place.url"  # a file in a folder of corpora: the address of what would be linked there
MakeMini = Callable[[Path, list[str]], None]
UNPACKED = "unpacked"  # folder beside that of corpora, for what was in tar files


def collect_corpora(
    out: Path, data: Data, paths: Mapping[str, Place], make_mini: MakeMini, extra_text: Sequence[str] = ()
) -> None:
    """Make `out` hold one entry for each release that `data` and extra texts need.

    `paths` are their places by key. A release in several places is a folder of numbered links. Tar files are unpacked
    beside `out`. Without any path, `make_mini` is called with `out` and the names of the corpora. Raises AsrtoolError
    naming the key, the path and what was expected there.
    """
    named = named_corpora(data, extra_text)
    _check_files(extra_text)
    releases = {release.key: release for item in named for release in item.releases}
    given = {key: paths.get(key, "") for key in releases}
    places = {
        key: [path for path in ((place,) if isinstance(place, str) else place) if path] for key, place in given.items()
    }
    missing = [release for release in releases.values() if not release.is_optional and not places[release.key]]
    if not any(places.values()) and all(item.corpus.in_mini for item in named):
        make_mini(out, [item.corpus.name for item in named])
        return
    if missing:
        raise AsrtoolError(
            f"no path is configured for {', '.join(f'paths.{release.key} ({release.title})' for release in missing)}",
            "set each with --set paths.KEY=PLACE" + _alternatives(named, missing),
        )
    unpacked = out.absolute().parent / UNPACKED
    targets = {r.name: find_release(r, places[r.key], unpacked) for r in releases.values() if places[r.key]}
    for folder in itertools.chain(*targets.values()):  # with links to it, the tree would be endless
        check_apart(folder, out)
    with write_folder(out, *(release.name for release in known_releases(data).values())) as temporary:
        for name, folders in targets.items():
            _link(temporary / name, folders)
            logging.info("%s -> %s", name, ", ".join(as_url(folder) or str(folder) for folder in folders))


def _alternatives(named: Sequence[CorpusInRoles], missing: Sequence[Release]) -> str:
    """Return advice for missing releases."""
    for_text = [release for item in named if item.roles == (TEXT,) for release in item.releases]
    advice = ", or leave out the further text with --set lm.extra_text=[]" if {*missing} & {*for_text} else ""
    in_mini = all(item.corpus.in_mini for item in named)
    return advice + (", or leave all of them empty to use the mini corpus" if in_mini else "")


def _check_files(extra_text: Sequence[str]) -> None:
    """Check early that extra texts which are not corpora are files."""
    for name in extra_text:
        if name not in registry.names("corpus") and not Path(name).is_file():
            what = "a folder" if Path(name).is_dir() else "no such file"
            known = ", ".join(registry.names("corpus"))
            raise AsrtoolError(f"lm.extra_text: {name}: {what}", f"name a file of sentences, or one of {known}")


def _link(name: Path, folders: Sequence[Path]) -> None:
    """Link folders; several keep their names, since patterns may contain them."""
    if len(folders) > 1:
        for number, folder in enumerate(folders, start=1):
            _link(name / str(number) / ("" if as_url(folder) else folder.name), [folder])
    elif url := as_url(folders[0]):
        write_text(name / PLACE, url + "\n")
    else:
        name.parent.mkdir(parents=True, exist_ok=True)
        name.symlink_to(folders[0], target_is_directory=True)


def find_release(release: Release, configured: Sequence[str], unpacked: Path) -> list[Path]:
    """Return the absolute folders of `release`, or its URL; tar files are unpacked.

    Raises AsrtoolError if one is missing, or if they hold something else.
    """
    places = [_open(release, path, unpacked) for path in configured]
    for pattern in release.holds:
        if not any(any(find_files(place, pattern)) for place in places):
            tars = any(any(find_files(place, tar)) for place in places for tar in ("*.tar", "*.tgz", "*.tar.gz"))
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
    if path.is_file() and path.name.lower().endswith(SUFFIXES) and not release.is_one_folder:
        return unpack(path, unpacked)
    if release.is_one_folder and path.is_file() and path.name.lower().endswith((*MANIFESTS, *IN_COLUMNS, CUTS)):
        return path
    state = "is a file" if path.exists() else "does not exist"
    if release.is_one_folder:
        what = f"expected a folder or a file {', '.join((*MANIFESTS, *IN_COLUMNS, CUTS))}"
        raise AsrtoolError(f"paths.{release.key}: {path} {state}, {what}", "correct the path")
    raise AsrtoolError(
        f"paths.{release.key}: {path} {state}, expected a folder or tar file of {release.name} ({release.title})",
        f"set paths.{release.key} to where the release is",
    )


def place_of(folder: Path) -> Path:
    """Return the address that `folder` stands for, or `folder` itself."""
    marker = folder / PLACE
    return Path(marker.read_text(encoding="utf-8").strip()) if marker.is_file() else folder


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
        names = [name for name in names if not name.startswith(".")]  # macOS leaves ._NAME on the disks of others
        yield from (Path(here, name) for name in sorted(names) if PurePath(here.lower(), name.lower()).match(pattern))


def by_stem(folder: Path, pattern: str) -> dict[str, Path]:
    """Return name without suffix, in lower case -> file, as find_files."""
    return {path.stem.lower(): path for path in find_files(folder, pattern)}


SUFFIXES = (".tar", ".tgz", ".tar.gz")
DONE = ".unpacked"  # size, times and inode of the tar file that a folder was unpacked from
CORRUPT = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def unpack(tar: Path, folder: Path) -> Path:
    """Return the folder with the content of `tar`, unpacked unless done before.

    Raises AsrtoolError for a tar file that is cut off, broken or unsafe, and if there is no room.
    """
    name = tar.name.lower().removesuffix(".gz").rpartition(".")[0]
    out = folder / f"{name}-{hashlib.sha256(str(tar).encode()).hexdigest()[:8]}"
    status = tar.stat()
    # No program can set back the time of the last change of an inode, as tar and rsync do with that of the contents.
    fingerprint = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}\n"
    if (out / DONE).is_file() and (out / DONE).read_text(encoding="ascii") == fingerprint:
        return out
    folder.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < status.st_size:  # compressed files need more, known only at the end
        raise AsrtoolError(
            f"{folder}: {free_bytes / 2**30:.1f} GiB free, expected at least {status.st_size / 2**30:.1f} for {tar}",
            "free some space, choose another place with --work, or unpack it elsewhere and name that folder",
        )
    logging.info("unpacking %s (%.1f GiB) below %s", tar, status.st_size / 2**30, folder)
    with write_folder(out, DONE) as temporary:
        _extract(tar, temporary)
        (temporary / DONE).write_text(fingerprint, encoding="ascii")
    return out


def _extract(path: Path, out: Path) -> None:
    try:
        # The number of members is known at the end only, so progress counts bytes read.
        total_mib = math.ceil(path.stat().st_size / 2**20)
        with path.open("rb") as file, tarfile.open(fileobj=file) as tar:
            for member in progress(tar, f"unpack {path.name}", total_mib, "MiB", lambda _: file.tell() / 2**20):
                tar.extract(member, out, filter="data")
            _check_end(tar)
    except CORRUPT as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise AsrtoolError(f"{path}: cannot be unpacked: {reason}", "fetch the file again from the release") from error


def _check_end(tar: tarfile.TarFile) -> None:
    """Raise ReadError unless a block of zeros ends the file, and check its checksum.

    tarfile accepts a file without it.
    """
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    if tar.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it is cut off, no block of zeros ends it")
    while tar.fileobj.read(2**20):
        pass
