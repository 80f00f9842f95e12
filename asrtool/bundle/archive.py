"""Files of a work folder in a zip archive or folder, with digests.

The last member, `bundle.json`, holds ``format``; ``about``, a description by the maker; ``files``: name -> size in
bytes and SHA-256; ``digest``: the SHA-256 of the rest, which names the bundle. The same files give the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from asrtool.data.remote import transfer
from asrtool.data.remote.cache import default_cache
from asrtool.errors import AsrtoolError
from asrtool.files import write_beside
from asrtool.log import logged_as
from asrtool.url import as_url, join

FORMAT = 1
TABLE = "bundle.json"
MODELS = "ASRTOOL_MODELS"  # variable: folder or address of bundles named without a path
PIECE_BYTES = 1 << 20
HINT = "export it again, or copy it again from where it is whole"
# Errors of zipfile for changed bytes: an unknown version or compression, a password, sizes that do not fit
BROKEN = (
    zipfile.BadZipFile, KeyError, ValueError, EOFError, NotImplementedError, RuntimeError, struct.error, zlib.error,
    lzma.LZMAError, OverflowError, MemoryError,
)  # fmt: skip
_DATE = (1980, 1, 1, 0, 0, 0)  # fixed date of every member: the bytes do not depend on the time of writing


@dataclass(frozen=True)
class Member:
    """A file of a bundle."""

    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Archive:
    """Bundle whose table was checked; a member is checked when it is read."""

    path: Path
    about: Mapping[str, Any]
    files: Mapping[str, Member]
    digest: str

    @property
    def num_bytes(self) -> int:
        """Total size of all members."""
        return sum(member.num_bytes for member in self.files.values())

    def unpack(self, folder: Path, names: Iterable[str]) -> None:
        """Write the members `names` below `folder`; AsrtoolError for a damaged one."""
        with _opener(self.path) as open_member:
            for name in names:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "wb") as file:
                    self._read(open_member, name, file)

    def check(self) -> None:
        """Check all members; AsrtoolError names a damaged one."""
        with _opener(self.path) as open_member:
            for name in self.files:
                self._read(open_member, name, None)

    def _read(self, open_member: Callable[[str], IO[bytes]], name: str, target: IO[bytes] | None) -> None:
        try:
            with open_member(name) as source:
                found = _copy(source, target)
        except (*BROKEN, FileNotFoundError) as error:
            raise AsrtoolError(f"{self.path}: {name} cannot be read: {error}", HINT) from error
        if found != self.files[name]:
            raise AsrtoolError(f"{self.path}: {name} is damaged: its checksum does not match", HINT)


def find_trained(path: Path) -> Path:
    """Return the file of a bundle, by address or by name in $ASRTOOL_MODELS.

    Any other path is returned as it is. What is fetched is checked and stays in the cache. Raises AsrtoolError if there
    is no such bundle.
    """
    place = os.environ.get(MODELS, "")
    if place and str(path) == path.name and not path.exists():
        found = join(place, f"{path.name.removesuffix('.asrtool')}.asrtool")
        if not as_url(found) and not Path(found).is_file():
            raise AsrtoolError(f"{path}: neither here nor at {found}", f"correct the name, or {MODELS}")
        path = Path(found)
    url = as_url(path)
    if not url:
        return path
    kept = default_cache() / "models" / hashlib.sha256(url.encode()).hexdigest()[:16] / path.name
    if not kept.exists():
        try:
            with write_beside(kept) as temporary, logged_as(temporary, url):
                with temporary.open("wb") as file:
                    transfer.fetch(url, file.write)
                open_archive(temporary).check()
        except OSError as error:
            raise AsrtoolError(str(error), f"correct the address, or {MODELS}") from error
    return kept


def write_archive(path: Path, files: Mapping[str, Path], about: Mapping[str, Any]) -> Archive:
    """Write a bundle of `files`, by their names in it, atomically.

    Raises AsrtoolError if the disk is full.
    """
    members = {}
    with write_beside(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for name, source in sorted(files.items()):
            with open(source, "rb") as file, archive.open(_info(name), "w", force_zip64=True) as target:
                members[name] = _copy(file, target)
        text, digest = _format_table(about, members)
        archive.writestr(_info(TABLE), text)
    return Archive(path, about, members, digest)


def write_table(folder: Path, about: Mapping[str, Any]) -> None:
    """Make a bundle of `folder`, by the table of all its files."""
    members = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != TABLE):
        with open(path, "rb") as file:
            members[path.relative_to(folder).as_posix()] = _copy(file, None)
    (folder / TABLE).write_text(_format_table(about, members)[0], encoding="utf-8")


def open_archive(path: Path) -> Archive:
    """Open a bundle, a file or a folder.

    Raises AsrtoolError if it is no bundle, damaged, or of a newer format.
    """
    try:
        with _opener(path) as open_member, open_member(TABLE) as file:
            table = json.load(file)
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", "name a bundle of `asrtool export`") from error
    except BROKEN as error:
        fault = "a damaged bundle: its end is missing" if is_cut_off(path) else f"no bundle, or a damaged one: {error}"
        raise AsrtoolError(f"{path}: {fault}", HINT) from error
    found = table.get("format") if isinstance(table, dict) else None
    if not isinstance(found, int) or not 1 <= found <= FORMAT:
        newer = isinstance(found, int) and found > FORMAT
        hint = "install a newer asrtool, or export it with this one" if newer else HINT
        raise AsrtoolError(f"{path}: bundle of format {found}, expected {FORMAT} at most", hint)
    digest = table.pop("digest", None)
    if digest != digest_of(table):
        raise AsrtoolError(f"{path}: a damaged bundle: its digest does not match", HINT)
    try:
        files = {_safe(name): Member(**member) for name, member in table["files"].items()}
        return Archive(Path(path), table["about"], files, digest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AsrtoolError(f"{path}: a damaged bundle: {error}", HINT) from error


def is_archive(path: Path) -> bool:
    """Return whether `path` is a zip file with the table of a bundle, or its start."""
    try:
        if is_cut_off(path):
            return True
        if not path.is_file() or not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            return TABLE in archive.namelist()
    except (*BROKEN, OSError):
        return False


def is_cut_off(path: Path) -> bool:
    """Return whether `path` begins as a bundle and lacks the end, with its directory."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        start = file.read(14)  # of the first member, up to its date, which torch does not write
    if start[:4] + start[10:] != b"PK\3\4\0\0!\0":
        return False
    if not zipfile.is_zipfile(path):
        return True
    try:
        with zipfile.ZipFile(path) as archive:  # of a member that is a zip file
            return all(info.header_offset for info in archive.infolist())
    except BROKEN:
        return False


def refuse_trained(key: str, path: str) -> None:
    """Raise AsrtoolError if the model file of `key` is a work folder or a bundle."""
    if path and (Path(path).is_dir() or is_archive(Path(path))):
        kind = "folder" if Path(path).is_dir() else "bundle"
        raise AsrtoolError(
            f"{key} = {path}: a {kind}, expected a model file",
            "name one of `asrtool average`; `asrtool finetune` takes a bundle or the --work of a run as it is",
        )


def digest_of(table: Mapping[str, Any]) -> str:
    """Return the SHA-256 of bundle.json without its digest."""
    return hashlib.sha256(json.dumps(table, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _format_table(about: Mapping[str, Any], members: Mapping[str, Member]) -> tuple[str, str]:
    """Return bundle.json and its digest."""
    table = {"format": FORMAT, "about": about, "files": {name: vars(member) for name, member in members.items()}}
    digest = digest_of(table)
    return json.dumps({**table, "digest": digest}, ensure_ascii=False, indent=1), digest


@contextlib.contextmanager
def _opener(path: Path) -> Iterator[Callable[[str], IO[bytes]]]:
    """Open a bundle; give the function that opens a member."""
    if path.is_dir():
        yield lambda name: (path / name).open("rb")
        return
    with zipfile.ZipFile(path) as archive:
        yield archive.open


def _copy(source: IO[bytes], target: IO[bytes] | None) -> Member:
    digest, num_bytes = hashlib.sha256(), 0
    while piece := source.read(PIECE_BYTES):
        digest.update(piece)
        num_bytes += len(piece)
        if target is not None:
            target.write(piece)
    return Member(num_bytes, digest.hexdigest())


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _DATE)
    info.external_attr = 0o644 << 16
    return info


def _safe(name: str) -> str:
    """Return `name`; ValueError if it is outside the folder it is unpacked to."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"it has a file {name!r}")
    return name
