"""Torch files that are whole or not there, and whose damage is noticed.

A file is what torch.save writes, a zip archive, with the SHA-256 of all bytes before it as the archive's comment. So
torch.load reads it as ever; by itself it would take an archive with changed bytes for good.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import torch

from asrtool.errors import AsrtoolError
from asrtool.files import write_beside

DIGEST_BYTES = hashlib.sha256().digest_size


def write_torch(path: Path, content: dict[str, Any]) -> None:
    """Write `content` (tensors, numbers, texts, and lists and dicts of them), atomically.

    Raises AsrtoolError when the disk is full: bytes go through Python, since torch's own writer hides the cause.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    with buffer.getbuffer() as data, write_beside(path) as temporary, open(temporary, "wb") as file:
        assert bytes(data[-2:]) == bytes(2), "a zip archive ends with the length of its comment, expected 0"
        data[-2:] = DIGEST_BYTES.to_bytes(2, "little")
        file.write(data)
        file.write(hashlib.sha256(data).digest())


def read_torch(path: Path, kind: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """The content of a file that `write_torch` wrote, on the CPU; no code in it is run.

    Raises AsrtoolError, naming `kind`, when the file cannot be read, is damaged, or lacks one of the `keys`.
    """
    hint = f"make the {kind} again, or copy it again from where it is whole"
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", hint) from error
    if hashlib.sha256(data[:-DIGEST_BYTES]).digest() != data[-DIGEST_BYTES:]:
        raise AsrtoolError(f"{path}: no {kind}, or a damaged one: its checksum does not match", hint)
    try:
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise AsrtoolError(f"{path}: no {kind}: {str(error).splitlines()[0]}", hint) from error
    missing = [key for key in keys if key not in content]
    if missing:
        raise AsrtoolError(f"{path}: no {kind}, it has no {missing[0]!r}", hint)
    assert isinstance(content, dict)
    return content
