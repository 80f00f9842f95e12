"""That pytest looks into every folder of tests."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    passed_over = pytestconfig.getini("norecursedirs")
    folders = [path for path in TESTS.rglob("*") if path.is_dir() and path.name != "__pycache__"]
    assert TESTS / "unit" / "distributed" in folders
    assert not [path for path in folders if any(fnmatch.fnmatch(path.name, pattern) for pattern in passed_over)]
