"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Each core has a process of tests; threads of torch that wait for one another would slow them down many times.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real speech, NIST examples and SPHERE files beside the checkout."""
    path = ROOT.parent / "shared"
    if not (path / "data").is_dir():
        pytest.skip("no ../shared/data beside the checkout (real speech and NIST examples)")
    return path


@pytest.fixture(scope="session")
def mini_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mini corpus of about a minute of speech, in LDC layout; read only."""
    from asrtool.config import Mini
    from local.mini_corpus import make_corpus

    out = tmp_path_factory.mktemp("mini") / "corpus"
    make_corpus(out, Mini(train_hours=0.02, test_minutes=0.5, seed=7))
    return out
