"""Model files as safetensors, with plain data in the metadata.

The content is the one of torch_file.py: a dict of tensors, numbers, texts, and lists and dicts of them. A tensor is
stored under its keys joined by dots (``weights.encoder.lstm.weight_ih_l0``); the rest is JSON under the key
``asrtool`` of the metadata, in which ``{"tensor": NAME}`` stands for a tensor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.errors import AsrtoolError
from asrtool.files import write_beside

if TYPE_CHECKING:
    from torch import Tensor


def unreadable(path: Path | str, kind: str, error: OSError) -> AsrtoolError:
    """Return the error for a file of that `kind` that cannot be read."""
    if isinstance(error, IsADirectoryError):
        return AsrtoolError(
            f"{path}: is a folder, expected a {kind}", "name the file, in a work folder average/model.pt"
        )
    return AsrtoolError(f"{path}: cannot be read, {error.strerror}", "check the path")


def damaged(path: Path | str, kind: str) -> AsrtoolError:
    """Return the error for a file of that `kind` whose digest does not match."""
    return AsrtoolError(f"{path}: no {kind}, or a damaged one: its checksum does not match", hint_for(kind))


def hint_for(kind: str) -> str:
    """Return the advice for a damaged file of `kind`."""
    return f"make the {kind} again, or copy it again from an undamaged one"


SUFFIX = ".safetensors"
METADATA = "asrtool"
TENSOR = "tensor"


def model_in(folder: Path) -> Path:
    """Return the model file in a folder: model.safetensors of a bundle, or model.pt."""
    safe = folder / f"model{SUFFIX}"
    return safe if safe.exists() else folder / "model.pt"


def write_safe(path: Path, content: dict[str, Any]) -> None:
    """Write `content` atomically; equal content gives equal bytes.

    Raises AsrtoolError if the disk is full.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    plain = json.dumps(_plain(content, "", tensors), ensure_ascii=False)
    with write_beside(path) as temporary:
        save_file(tensors, temporary, {METADATA: plain})


def read_safe(path: Path | str, kind: str, keys: tuple[str, ...], with_tensors: bool = True) -> dict[str, Any]:
    """Read a file of `write_safe` to the CPU.

    Without tensors each is None, and torch is not needed. Raises AsrtoolError, naming `kind`, if the file cannot be
    read, is damaged, or lacks one of the `keys`.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt" if with_tensors else "np") as file:
            get_tensor = file.get_tensor if with_tensors else lambda _: None
            content = _whole(json.loads((file.metadata() or {})[METADATA]), get_tensor)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise AsrtoolError(f"{path}: no {kind}: {reason}", hint_for(kind)) from error
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        raise AsrtoolError(f"{path}: no {kind}, it has no {missing[0]!r}", hint_for(kind))
    assert isinstance(content, dict)
    return content


def _plain(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return `value`; its tensors are added to `tensors` by name."""
    import torch

    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().cpu().contiguous().clone()  # else tied weights share memory
        return {TENSOR: name}
    if isinstance(value, Mapping):
        return {key: _plain(item, f"{name}.{key}" if name else key, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{name}.{place}", tensors) for place, item in enumerate(value)]
    return value


def _whole(value: Any, get_tensor: Callable[[str], Tensor | None]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {TENSOR}:
            return get_tensor(value[TENSOR])
        return {key: _whole(item, get_tensor) for key, item in value.items()}
    return [_whole(item, get_tensor) for item in value] if isinstance(value, list) else value
