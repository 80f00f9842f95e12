"""Collection: pytest finds every folder of tests, and module names are unique."""

from __future__ import annotations

import fnmatch
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    passed_over = pytestconfig.getini("norecursedirs")
    folders = [path for path in TESTS.rglob("*") if path.is_dir() and path.name != "__pycache__"]
    assert TESTS / "unit" / "distributed" in folders
    assert not [path for path in folders if any(fnmatch.fnmatch(path.name, pattern) for pattern in passed_over)]


def test_no_two_modules_have_the_same_name() -> None:
    """Folders are no packages, so that pytest would refuse the second one."""
    names = Counter(path.name for path in TESTS.rglob("*.py") if path.name not in ("conftest.py", "__init__.py"))
    assert len(names) > 100
    assert [name for name, number in names.items() if number > 1] == []
