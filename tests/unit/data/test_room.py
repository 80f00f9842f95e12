"""Disk space for features: what is needed is stated, and too little is an error before anything is computed."""

from __future__ import annotations

import dataclasses
import logging
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from asrtool.data.features.compute_sets import compute_features
from asrtool.data.features.disk_space import stored_bytes
from asrtool.data.manifests.manifest import read_report
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Features

MakeManifests = Callable[..., Path]
PLAIN = Features(num_jobs=1, speeds=(1.0,))
HOURS = 0.004  # of a set of one recording, as its report rounds them


def size(out: Path) -> int:
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    def leave(num_bytes: float) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: types.SimpleNamespace(free=num_bytes))

    return leave


@pytest.mark.parametrize("storage", ["lilcom", "shar", "flac"])
def test_the_estimate_is_near_what_is_written(corpus: Path, storage: str) -> None:
    """Features of 23 values, where what lies beside them weighs more than with 40."""
    features = dataclasses.replace(Features(), storage=storage)
    hours = {name: read_report(corpus / "manifests" / name)["speech_hours"] for name in ("train", "dev", "test")}
    copies_hours = hours["train"] * (1 / 0.9 + 1 / 1.1)
    estimate = stored_bytes(features, sum(hours.values()), copies_hours) * (1 if storage == "flac" else 23 / 40)
    assert 0.75 < estimate / size(corpus / storage) < 1.3


def test_what_is_needed_and_free_is_logged(
    make_manifests: MakeManifests, tmp_path: Path, caplog: pytest.LogCaptureFixture, free: Callable[[float], None]
) -> None:
    free(123e9)
    with caplog.at_level(logging.INFO):
        compute_features(make_manifests(), tmp_path / "features", PLAIN)
    # 3 x sets, 100 frames a second of 40 values of 1.25 bytes
    assert "features of 0.012 h at all speeds, lilcom: about 0.000216 GB of disk; 0 GB are there, 123 GB" in caplog.text


def test_too_little_room_is_one_line_before_anything_is_computed(
    make_manifests: MakeManifests, tmp_path: Path, free: Callable[[float], None]
) -> None:
    free(1e5)
    message = r"features: features of 0\.012 h need about 0\.000216 GB of disk, .* 0\.000116 GB are missing; free some"
    with pytest.raises(AsrtoolError, match=message) as raised:
        compute_features(make_manifests(), tmp_path / "features", PLAIN)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "features").exists()


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"keep_audio": True}, "features.keep_audio=false"),
        ({"speeds": (0.9, 1.0)}, r"features.speeds=\[1.0\]"),
        ({"storage": "shar"}, "features.storage=lilcom"),
        ({"storage": "flac"}, "features.storage=lilcom"),
        ({"storage": "flac", "speeds": (0.8, 0.9, 1.0, 1.1, 1.2)}, "data.train"),
        ({}, "data.train"),
    ],
)
def test_the_advice_needs_less(
    make_manifests: MakeManifests, tmp_path: Path, free: Callable[[float], None], changes: dict, advice: str
) -> None:
    free(0)
    with pytest.raises(AsrtoolError, match=advice):
        compute_features(make_manifests(), tmp_path / "features", dataclasses.replace(PLAIN, **changes))


def test_kept_samples_and_copies_need_their_room(
    make_manifests: MakeManifests, tmp_path: Path, free: Callable[[float], None]
) -> None:
    manifests = make_manifests()
    plain = stored_bytes(PLAIN, 3 * HOURS, 0)
    copies = dataclasses.replace(PLAIN, speeds=(1.0, 0.5))
    for features, more in (
        (copies, plain / 3 * 2),
        (dataclasses.replace(PLAIN, keep_audio=True), HOURS * 3600 * 16000),
    ):
        free(plain + more - 2e3)
        with pytest.raises(AsrtoolError, match="are missing"):
            compute_features(manifests, tmp_path / "features", features)
        free(plain + more + 2e3)
        compute_features(manifests, tmp_path / "features", features)
        (tmp_path / "features").rename(tmp_path / f"done-{more}")


def test_what_is_there_needs_no_further_room(
    make_manifests: MakeManifests, tmp_path: Path, free: Callable[[float], None]
) -> None:
    manifests, out = make_manifests(), tmp_path / "features"
    compute_features(manifests, out, PLAIN)
    free(stored_bytes(PLAIN, 3 * HOURS, 0) - size(out) + 2e3)
    compute_features(manifests, out, PLAIN)
