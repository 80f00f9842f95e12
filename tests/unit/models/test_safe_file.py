"""Weights as safetensors, which other programs read."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from asrtool.errors import AsrtoolError
from asrtool.models.files.safetensors_file import read_safe, write_safe
from asrtool.models.files.torch_file import read_torch

KEYS = ("format", "info", "weights")


def content() -> dict[str, Any]:
    tied = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    weights = OrderedDict({"a.b": tied, "a": tied, "c": torch.tensor(3), "half": torch.ones(2, dtype=torch.bfloat16)})
    info = {"model": {"encoder": "lstm", "rate": 0.25, "none": None, "list": [1, "x"]}, "tree": {"leaves": tied.T}}
    return {"format": 2, "info": info, "weights": weights}


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    return bool(found == expected)


def test_all_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safe(path, content())
    assert same(read_safe(path, "model file", KEYS), content())
    assert same(read_torch(path, "model file", KEYS), content())  # by its suffix
    before = path.read_bytes()
    write_safe(path, content())
    assert path.read_bytes() == before


def test_other_programs_find_the_tensors_by_name(tmp_path: Path) -> None:
    write_safe(tmp_path / "x.safetensors", content())
    found = load_file(tmp_path / "x.safetensors")
    assert set(found) == {"weights.a.b", "weights.a", "weights.c", "weights.half", "info.tree.leaves"}
    assert torch.equal(found["weights.a.b"], content()["weights"]["a.b"])


def test_a_file_that_is_none_or_cut_off_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safe(path, content())
    whole = path.read_bytes()
    for data in (b"", b"no tensors in here", whole[:40], whole[:-1]):
        path.write_bytes(data)
        with pytest.raises(AsrtoolError, match=r"x\.safetensors: no model file") as caught:
            read_safe(path, "model file", KEYS)
        assert "\n" not in caught.value.what
    with pytest.raises(AsrtoolError, match="no model file"):
        read_safe(tmp_path / "missing.safetensors", "model file", KEYS)


def test_a_file_of_somebody_else_lacks_the_rest(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(1)}, tmp_path / "x.safetensors")
    with pytest.raises(AsrtoolError, match="no model file"):
        read_safe(tmp_path / "x.safetensors", "model file", KEYS)
    write_safe(tmp_path / "y.safetensors", {"format": 2})
    with pytest.raises(AsrtoolError, match="it has no 'info'"):
        read_safe(tmp_path / "y.safetensors", "model file", KEYS)
