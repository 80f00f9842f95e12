"""Tracked files: the linter, the type checker and the code digest see every Python file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from asrtool.recipe.source import code_digests

ROOT = Path(__file__).resolve().parents[2]
# Tests are run instead, and give stand-ins where a type is asked for; tests/unit/cli/test_run.py checks each recipe.
NOT_TYPED = ("tests/", "recipes/")


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """The Python files of the checkout, relative to ROOT."""
    try:
        answer = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"git does not list the files of {ROOT}: {error}")
    names = answer.stdout.splitlines()  # of local and utils as asrtool has them, by links
    names = [f"asrtool/{name}" if name.startswith(("local/", "utils/")) else name for name in names]
    files = {name for name in names if (ROOT / name).is_file()}
    assert "asrtool/cli/main.py" in files
    return files


def test_the_linter_sees_every_file(tracked: set[str]) -> None:
    ruff = [Path(sys.executable).with_name("ruff"), "check", "--show-files", "."]
    seen = subprocess.run(ruff, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sorted({(ROOT / name).resolve() for name in tracked} - {Path(name).resolve() for name in seen}) == []


def test_the_type_checker_sees_every_file(tracked: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from mypy.main import process_options

    monkeypatch.chdir(ROOT)
    sources, _ = process_options([])  # as `mypy` reads pyproject.toml
    seen = {(ROOT / str(source.path)).relative_to(ROOT).as_posix() for source in sources}
    assert sorted(name for name in tracked - seen if not name.startswith(NOT_TYPED)) == []


def test_the_code_digest_finds_and_parses_every_module_a_command_can_import(tracked: set[str]) -> None:
    unseen = []
    for name in sorted(name for name in tracked if name.startswith("asrtool/")):
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if name not in code_digests([module]):
            unseen.append(name)
    assert unseen == []
