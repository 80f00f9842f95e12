"""Cache of compiled functions: its folder, and when it becomes stale."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numba.core.event import install_recorder

from asrtool.compiled import compiled


def write(folder: Path, name: str, text: str, seconds: int = 0) -> None:
    """Write a module of Python whose file was changed in this second."""
    path = folder / f"{name}.py"
    path.write_text(text)
    os.utime(path, (seconds, seconds))


def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Import `total` of module `sums` as a new process does."""
    for name in ("sums", "terms"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    monkeypatch.syspath_prepend(folder)
    function: Callable[..., Any] = importlib.import_module("sums").total
    return function


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a module that calls another one, and an empty user cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write(tmp_path, "terms", "STEP = 1\ndef term(i):\n    return STEP * i\n")
    write(
        tmp_path,
        "sums",
        "from terms import term\nSTEP = 100\ndef total(n):\n    s = 0\n    for i in range(n):\n"
        "        s += term(i) + STEP\n    return s\n",
    )
    return tmp_path


def test_functions_see_names_of_their_own_modules_and_the_constants(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = load(folder, monkeypatch)
    assert (total(4), compiled(total)(4), compiled(total, STEP=10)(4)) == (406, 406, 100)


def test_kept_code_is_used_until_a_file_of_it_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for seconds, step in ((0, 1), (0, 1), (9, 2)):
        write(folder, "terms", f"STEP = {step}\ndef term(i):\n    return STEP * i\n", seconds)
        with install_recorder("numba:compile") as compiling:
            found.append((compiled(load(folder, monkeypatch))(4), bool(compiling.buffer)))
    assert found == [(406, True), (406, False), (412, True)]


def test_code_is_kept_elsewhere_or_not_at_all_where_folders_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "__pycache__").write_text("")  # a file: no folder can be made
    assert compiled(load(folder, monkeypatch))(4) == 406
    assert list((folder / "cache").rglob("*.nbc"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "__pycache__"))
    assert compiled(load(folder, monkeypatch))(4) == 406
