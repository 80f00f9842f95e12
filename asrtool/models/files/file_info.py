"""Read the description in a model file without torch: all but its tensors."""

from __future__ import annotations

import collections
import hashlib
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.models.files.safetensors_file import SUFFIX, damaged, hint_for, read_safe, unreadable

DIGEST_BYTES = hashlib.sha256().digest_size
PIECE_BYTES = 1 << 20


def read_info(path: Path | str, kind: str = "model file") -> dict[str, Any]:
    """Read ``info`` of the file `path`.

    Raises AsrtoolError, naming `kind`, if it cannot be read, is damaged or has none.
    """
    if Path(path).suffix == SUFFIX:
        safe_info: dict[str, Any] = read_safe(path, kind, ("info",), with_tensors=False)["info"]
        return safe_info
    check_digest(path, kind)
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            content = _Outline(io.BytesIO(archive.read(name))).load()
        info = content["info"]
    except (zipfile.BadZipFile, pickle.UnpicklingError, ValueError, KeyError, TypeError) as error:
        raise AsrtoolError(f"{path}: no {kind}: {error}", hint_for(kind)) from error
    assert isinstance(info, dict)
    return info


def check_digest(path: Path | str, kind: str) -> None:
    """Check the digest of a file piece by piece; AsrtoolError naming `kind`."""
    digest, last = hashlib.sha256(), b""
    try:
        with open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                digest.update((last + piece)[:-DIGEST_BYTES])
                last = (last + piece)[-DIGEST_BYTES:]
    except OSError as error:
        raise unreadable(path, kind, error) from error
    if digest.digest() != last:
        raise damaged(path, kind)


class _Outline(pickle.Unpickler):
    """Unpickler of plain data; a tensor is None, and nothing else is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda *_: None
        if module == "torch" and name.endswith("Storage"):
            return name
        raise pickle.UnpicklingError(f"{module}.{name} is neither tensor nor plain data")

    def persistent_load(self, pid: Any) -> None:
        """Return None in place of a tensor."""
