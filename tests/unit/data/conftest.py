"""A small corpus of tones and noise, as manifests and as features."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import Recording, SupervisionSegment

from asrtool.data.features.compute_sets import compute_features
from asrtool.data.manifests.manifest import write_manifests
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.settings.data import Features
from asrtool.settings.schema import Choice

RATE_HZ = 8000
NUM_SEGMENTS = 6  # of a recording
TONE_HZ = (400, 1500)  # of side A and side B

SMALL = Features(type=Choice.of("features", "fbank", num_mel_bins=23), shard_cuts=12, num_jobs=1)
SETS = Sets((EvaluationSet("test"),))


def write_recording(path: Path, seed: int, duration_s: float = 20.0) -> Recording:
    """Two channels: a tone of its own on each side, rising and falling, and noise."""
    random = np.random.default_rng(seed)
    t = np.arange(int(duration_s * RATE_HZ)) / RATE_HZ
    loudness = 0.05 + 0.2 * (np.sin(2 * np.pi * (0.9 + 0.1 * seed) * t) > 0)
    sides = [loudness * np.sin(2 * np.pi * hz * t) + 0.01 * random.standard_normal(len(t)) for hz in TONE_HZ]
    soundfile.write(path, np.stack(sides, axis=1), RATE_HZ, subtype="PCM_16")
    return Recording.from_file(path, recording_id=path.stem)


def make_segments(recording: Recording, num: int = NUM_SEGMENTS, speaker: str = "") -> list[SupervisionSegment]:
    """Segments of 1.5 to 3.5 s, sides in turn; a side is a speaker unless one is named."""
    return [
        SupervisionSegment(
            id=f"{recording.id}-{n}",
            recording_id=recording.id,
            start=3.0 * n + 0.125,
            duration=1.5 + 0.37 * n,
            channel=n % 2,
            text=f"word number {n}",
            speaker=speaker or f"{recording.id}-{'AB'[n % 2]}",
        )
        for n in range(num)
    ]


@pytest.fixture
def make_manifests(tmp_path: Path) -> Callable[..., Path]:
    """Write manifests of a few recordings: train, dev and test have as many as asked for."""

    def make(train: int = 1, dev: int = 1, test: int = 1) -> Path:
        audio = tmp_path / "audio"
        audio.mkdir()
        seed = 0
        for name, num in (("train", train), ("dev", dev), ("test", test)):
            recordings = [write_recording(audio / f"{name}{i}.wav", seed := seed + 1) for i in range(num)]
            segments = [segment for recording in recordings for segment in make_segments(recording)]
            write_manifests(tmp_path / "manifests" / name, recordings, segments, [], 0.01, {})
        write_sets(tmp_path / "manifests", SETS)
        return tmp_path / "manifests"

    return make


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `manifests`, and features in each storage: `lilcom`, `shar` and `flac`. To be read only."""
    root = tmp_path_factory.mktemp("tones")
    (root / "audio").mkdir()
    for name, seeds in (("train", range(4)), ("dev", range(4, 5)), ("test", range(5, 6))):
        recordings = [write_recording(root / "audio" / f"{name}{seed}.wav", seed) for seed in seeds]
        segments = [segment for recording in recordings for segment in make_segments(recording)]
        write_manifests(root / "manifests" / name, recordings, segments, [], 0.01, {})
    write_sets(root / "manifests", SETS)
    compute_features(root / "manifests", root / "lilcom", SMALL)
    for storage in ("shar", "flac"):
        compute_features(root / "manifests", root / storage, dataclasses.replace(SMALL, storage=storage))
    return root
