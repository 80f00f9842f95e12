"""The toy recipe, with sources and commands of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy

from asrtool.recipe import process, source, state
from asrtool.recipe.state import Run


@pytest.fixture
def toy_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the sources that the toy commands are taken to be made of."""
    root = tmp_path / "root"
    toy.write_sources(root)
    monkeypatch.setattr(source, "ROOT", root)
    monkeypatch.setattr(state, "ROOT", root)
    monkeypatch.setattr(process, "START", toy.COMMANDS)
    return root


@pytest.fixture
def toy_run(tmp_path: Path, toy_root: Path) -> Run:
    return toy.make_run(tmp_path)
