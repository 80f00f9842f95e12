"""Torch files that are whole or not there, and whose damage is noticed."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

from asrtool.errors import AsrtoolError
from asrtool.files import write_beside

# What zipfile and torch raise for bytes they cannot make sense of.
DAMAGE = (
    zipfile.BadZipFile, zlib.error, pickle.UnpicklingError, struct.error,
    RuntimeError, EOFError, ValueError, KeyError, OverflowError, OSError,
)  # fmt: skip


def write_torch(path: Path, content: dict[str, Any]) -> None:
    """Write `content` (tensors, numbers, texts, and lists and dicts of them), atomically.

    Raises AsrtoolError when the disk is full: bytes go through Python, since torch's own writer hides the cause.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    with write_beside(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def read_torch(path: Path, kind: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """The content of a file that `write_torch` wrote, on the CPU; no code in it is run.

    Checks every byte against its checksum, which torch.load does not. Raises AsrtoolError, naming `kind`, when the
    file cannot be read, is damaged, or lacks one of the `keys`.
    """
    hint = f"make the {kind} again, or copy it again from where it is whole"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", hint) from error
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            damaged = archive.testzip()
        content = None if damaged else torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (
        zipfile.BadZipFile,
        RuntimeError,
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        NotImplementedError,
    ) as error:
        raise AsrtoolError(f"{path}: no {kind} or a damaged one ({_first_line(error)})", hint) from error
    if damaged:
        raise AsrtoolError(f"{path}: damaged {kind}, wrong checksum of {damaged}", hint)
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        raise AsrtoolError(f"{path}: no {kind}, it has no {missing[0]!r}", hint)
    assert isinstance(content, dict)
    return content


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
