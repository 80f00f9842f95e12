"""A small corpus of tones and noise, as manifests and as features."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from tones import SMALL, write_corpus

from asrtool.data.features import compute_sets
from asrtool.data.features.compute_sets import compute_features


@pytest.fixture
def make_manifests(tmp_path: Path) -> Callable[..., Path]:
    """Write manifests of a few recordings: train, dev and test have as many as asked for."""
    return functools.partial(write_corpus, tmp_path)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `manifests`, and features in each storage: `lilcom`, `shar` and `flac`. To be read only."""
    root = tmp_path_factory.mktemp("tones")
    write_corpus(root, train=4)
    for storage in ("lilcom", "shar", "flac"):
        compute_features(root / "manifests", root / storage, dataclasses.replace(SMALL, storage=storage))
    return root


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Set and number of each shard that is computed."""
    found: list[tuple[str, int]] = []
    compute_shard = compute_sets.compute_shard

    def noting(job, directory: Path, *rest) -> int:
        found.append((directory.name.removeprefix(".part."), job.number))
        return compute_shard(job, directory, *rest)

    monkeypatch.setattr(compute_sets, "compute_shard", noting)
    return found
