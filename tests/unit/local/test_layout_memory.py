"""Memory of sets that come as objects, of lhotse's or of rows: one an utterance, and no second one to write it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from lhotse import RecordingSet, SupervisionSegment, SupervisionSet
from memory import peak_bytes

from asrtool.local.layouts.lhotse import prepare_lhotse
from asrtool.local.layouts.manifest import prepare_manifest
from asrtool.local.utterances import Sound, make_recording
from asrtool.settings.data import Data
from asrtool.utils.sphere import write_sphere

RATE_HZ, EACH = 8000, 40  # utterances of a file
TEXT = "turn about nothing much"
Prepare = Callable[[Path], None]


def sounds(folder: Path, num: int) -> list[Path]:
    """Files of 20 s, which are one on the disk."""
    folder.mkdir(parents=True)
    paths = [folder / f"talk{number:03d}.sph" for number in range(num)]
    write_sphere(paths[0], np.zeros((20 * RATE_HZ, 1), dtype=np.int16), RATE_HZ, "pcm")
    for path in paths[1:]:
        os.link(paths[0], path)
    return paths


def manifest(root: Path, num: int) -> Prepare:
    places = itertools.product(sounds(root / "audio", num), range(EACH))
    rows = [{"audio_filepath": str(path), "offset": i / 2, "duration": 0.4, "text": TEXT} for path, i in places]
    (root / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return lambda out: prepare_manifest(root / "train.jsonl", out, Data(), "x")


def lhotse(root: Path, num: int) -> Prepare:
    paths = sounds(root / "audio", num)
    recordings = [make_recording(path.stem, Sound(path, 20 * RATE_HZ, RATE_HZ)) for path in paths]
    segments = [
        SupervisionSegment(f"{r.id}-{i}", r.id, i / 2, 0.4, 0, TEXT, speaker=r.id)
        for r, i in itertools.product(recordings, range(EACH))
    ]
    RecordingSet.from_recordings(recordings).to_file(root / "recordings.jsonl.gz")
    SupervisionSet.from_segments(segments).to_file(root / "supervisions.jsonl.gz")
    return lambda out: prepare_lhotse(root, out, Data(), "x")


@pytest.mark.slow
@pytest.mark.parametrize("write", [manifest, lhotse])
def test_an_utterance_is_there_once(write: Callable[[Path, int], Prepare], tmp_path: Path) -> None:
    """As an object and its text; with entries of the manifest and of the reference it took 1,360 bytes and more."""

    def peak(num: int) -> int:
        prepare = write(tmp_path / str(num), num)
        return peak_bytes(lambda: prepare(tmp_path / "out"))

    assert (peak(16) - peak(8)) / (8 * EACH) < 1000
