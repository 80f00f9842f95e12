"""Small corpora of tones and noise."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
import soundfile
from lhotse import Recording, SupervisionSegment

from asrtool.data.manifests.manifest import write_manifests
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.settings.data import Features
from asrtool.settings.schema import Choice

RATE_HZ = 8000
TONE_HZ = (400, 1500)  # of side A and side B
SMALL = Features(type=Choice.of("features", "fbank", num_mel_bins=23), shard_cuts=12, num_jobs=1)
PLAIN = dataclasses.replace(SMALL, speeds=(1.0,))
SETS = Sets((EvaluationSet("test"),))


def write_recording(path: Path, seed: int, duration_s: float = 20.0) -> Recording:
    """Write two channels: a tone of its own on each side, rising and falling, and noise."""
    random = np.random.default_rng(seed)
    t = np.arange(int(duration_s * RATE_HZ)) / RATE_HZ
    loudness = 0.05 + 0.2 * (np.sin(2 * np.pi * (0.9 + 0.1 * seed) * t) > 0)
    sides = [loudness * np.sin(2 * np.pi * hz * t) + 0.01 * random.standard_normal(len(t)) for hz in TONE_HZ]
    soundfile.write(path, np.stack(sides, axis=1), RATE_HZ, subtype="PCM_16")
    return Recording.from_file(path, recording_id=path.stem)


def make_segments(recording: Recording) -> list[SupervisionSegment]:
    """Six segments of 1.5 to 3.5 s, sides in turn; a side is a speaker.

    2.01 s are a little less than 16,080 samples as a product of floats.
    """
    return [
        SupervisionSegment(
            id=f"{recording.id}-{n}",
            recording_id=recording.id,
            start=3.0 * n + 0.125 if n else 2.01,
            duration=1.5 + 0.37 * n,
            channel=n % 2,
            text=f"word number {n}",
            speaker=f"{recording.id}-{'AB'[n % 2]}",
        )
        for n in range(6)
    ]


def write_corpus(folder: Path, train: int = 1, dev: int = 1, test: int = 1) -> Path:
    """Write `folder`/audio and the manifests, which are returned, of so many recordings."""
    (folder / "audio").mkdir()
    seed = 0
    for name, num in (("train", train), ("dev", dev), ("test", test)):
        recordings = [write_recording(folder / "audio" / f"{name}{i}.wav", seed := seed + 1) for i in range(num)]
        segments = [segment for recording in recordings for segment in make_segments(recording)]
        write_manifests(folder / "manifests" / name, recordings, segments, [], 0.01, {})
    write_sets(folder / "manifests", SETS)
    return folder / "manifests"


def change_line(path: Path, number: int, change: dict[str, object]) -> None:
    """Change fields in a line of a manifest."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    lines[number] = json.dumps({**json.loads(lines[number]), **change})
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


def read_all(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
