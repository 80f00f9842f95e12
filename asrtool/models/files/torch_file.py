"""Torch files that are whole or not there, and whose damage is noticed.

A file is what torch.save writes, a zip archive, with the SHA-256 of all bytes before it as the archive's comment. So
torch.load reads it as ever; by itself it would take an archive with changed bytes for good.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import torch

from asrtool.errors import AsrtoolError
from asrtool.files import write_beside
from asrtool.models.files.file_info import DIGEST_BYTES, PIECE_BYTES, check_digest
from asrtool.models.files.safetensors_file import SUFFIX, hint_for, read_safe

HELD_BYTES = 1 << 24  # page cache for a file being written: new pages for all of it would cost more
IS_TORCH_1 = torch.__version__.startswith("1.")  # the last ones that the k2 of PyPI works with


def write_torch(path: Path, content: dict[str, Any], before_rename: Callable[[], None] = lambda: None) -> None:
    """Write `content` (tensors, numbers, texts, lists and dicts) atomically.

    It needs no memory for the file, and other threads compute meanwhile. The tensors must not change. The file is
    synced before it gets its name, so it is whole after a power cut. `before_rename` is called before the
    rename; if it raises, there is no file. Raises AsrtoolError if the disk is full.
    """
    with write_beside(path) as temporary:
        with open(temporary, "wb") as file:
            archive = _Archive(file)
            torch.save(content, archive)  # type: ignore[arg-type]  # it calls no other methods
            archive.finish()
            file.flush()
            os.fsync(file.fileno())
        before_rename()


class _Archive:
    """File object for torch.save that hashes the bytes and appends the digest."""

    def __init__(self, file: BinaryIO):
        self.file = file
        self.hash = hashlib.sha256()
        self.held = b""  # the last two bytes written: at the end they are the length of the archive's comment
        self.num_held = 0  # bytes that were not sent to the disk yet
        self.error: BaseException | None = None

    def write(self, data: memoryview) -> int:
        if self.error is None:
            try:
                self._pass_on(self.held[: len(data)])
                self._pass_on(data[:-2])
                self.held = self.held[len(data) :] + bytes(data[-2:])
            except BaseException as error:  # kept for `finish`: torch would raise another one, without the cause
                self.error = error
        return len(data)

    def flush(self) -> None:
        pass

    def finish(self) -> None:
        """Add the digest as the archive's comment; raises the error of `write`, if any."""
        if self.error is not None:
            raise self.error
        assert self.held == bytes(2), "a zip archive ends with the length of its comment, expected 0"
        self._pass_on(DIGEST_BYTES.to_bytes(2, "little"))
        self.file.write(self.hash.digest())

    def _pass_on(self, data: memoryview | bytes) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            self.hash.update(piece)
            self.file.write(piece)
            self.num_held += len(piece)
            if self.num_held >= HELD_BYTES:
                self._release()

    def _release(self) -> None:
        """Release the pages of these bytes once they are on the disk."""
        self.num_held = 0
        if sys.platform == "linux":
            self.file.flush()
            os.fdatasync(self.file.fileno())
            os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_torch(path: Path | str, kind: str, keys: tuple[str, ...], mapped: bool = False) -> dict[str, Any]:
    """Read a file of `write_torch` or `write_safe` to the CPU without running code.

    `mapped` tensors are read when they are used, and cost memory only in processes that use them. Raises
    AsrtoolError, naming `kind`, if the file cannot be read, is damaged, or lacks one of the `keys`.
    """
    if Path(path).suffix == SUFFIX:
        return read_safe(path, kind, keys)
    hint = hint_for(kind)
    try:
        check_digest(path, kind)
        content = map_torch(path) if mapped and not IS_TORCH_1 else _load_weights(str(path))
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise AsrtoolError(f"{path}: no {kind}: {str(error).splitlines()[0]}", hint) from error
    missing = [key for key in keys if key not in content]
    if missing:
        raise AsrtoolError(f"{path}: no {kind}, it has no {missing[0]!r}", hint)
    assert isinstance(content, dict)
    return content


def map_torch(path: Path | str) -> dict[str, Any]:
    """Map a file that was already checked; needs torch 2."""
    content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    assert isinstance(content, dict)
    return content


def _load_weights(path: str) -> Any:
    if not IS_TORCH_1:
        return torch.load(path, map_location="cpu", weights_only=True)
    # weights_only of torch 1.13 cannot read a float, and its torch.load ignores other unpicklers.
    with torch.serialization._open_zipfile_reader(path) as archive:
        restricted = SimpleNamespace(Unpickler=_WeightsUnpickler)
        return torch.serialization._load(archive, "cpu", restricted, encoding="utf-8")


class _WeightsUnpickler(pickle.Unpickler):
    """Unpickler of tensors and plain data; nothing else is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in (("collections", "OrderedDict"), ("torch._utils", "_rebuild_tensor_v2")):
            raise pickle.UnpicklingError(f"Weights only load failed: {module}.{name} is neither tensor nor plain data")
        return super().find_class(module, name)
