"""Tar files of a release to folders, each unpacked once."""

from __future__ import annotations

import gzip
import hashlib
import logging
import lzma
import math
import shutil
import tarfile
import zlib
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.log import progress

SUFFIXES = (".tar", ".tgz", ".tar.gz")
DONE = ".unpacked"  # size, times and inode of the tar file that a folder was unpacked from
CORRUPT = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def is_tar(path: Path) -> bool:
    """Return whether `path` is named as a tar file."""
    return path.is_file() and path.name.lower().endswith(SUFFIXES)


def unpack(tar: Path, folder: Path) -> Path:
    """Return the folder with the content of `tar`, unpacked unless done before.

    Raises AsrtoolError for a tar file that is cut off, broken or unsafe, and if there is no room.
    """
    name = tar.name.lower().removesuffix(".gz").rpartition(".")[0]
    out = folder / f"{name}-{hashlib.sha256(str(tar).encode()).hexdigest()[:8]}"
    status = tar.stat()
    # No program can set back the time of the last change of an inode, as tar and rsync do with that of the contents.
    made_of = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}\n"
    if (out / DONE).is_file() and (out / DONE).read_text(encoding="ascii") == made_of:
        return out
    folder.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < status.st_size:  # what is compressed needs more; how much shows at its end
        raise AsrtoolError(
            f"{folder}: {free_bytes / 2**30:.1f} GiB free, expected at least {status.st_size / 2**30:.1f} for {tar}",
            "free some space, choose another place with --work, or unpack it elsewhere and name that folder",
        )
    logging.info("unpacking %s (%.1f GiB) below %s", tar, status.st_size / 2**30, folder)
    with write_folder(out, DONE) as temporary:
        _extract(tar, temporary)
        (temporary / DONE).write_text(made_of, encoding="ascii")
    return out


def _extract(path: Path, out: Path) -> None:
    try:
        # How many members there are shows at the end only, so progress counts what is read of the file.
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
