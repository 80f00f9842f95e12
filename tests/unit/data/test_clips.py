"""Stretches of recordings that a manifest folder lists."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from asrtool.data.audio.excerpts import Clips
from asrtool.errors import AsrtoolError

RATE_HZ = 8000


def write(folder: Path, source: str, kind: str = "file", **changed: Any) -> Path:
    """A manifest folder of one recording of 3 s with two channels; each sample says its channel and second."""
    seconds = np.arange(3 * RATE_HZ) // RATE_HZ
    soundfile.write(folder / "a.wav", np.stack([seconds + 1, -(seconds + 1)], axis=1) / 16, RATE_HZ)
    sources = [{"type": kind, "channels": [0, 1], "source": source}]
    entry = {"id": "r", "sources": sources, "sampling_rate": RATE_HZ, "num_samples": 3 * RATE_HZ, "duration": 3.0}
    line = json.dumps({**entry, "channel_ids": [0, 1], **changed})
    (folder / "recordings.jsonl.gz").write_bytes(gzip.compress(f"{line}\n".encode()))
    return folder


@pytest.mark.parametrize(("channel", "sign"), [("A", 1), ("B", -1), ("a", 1)])
def test_a_stretch_of_a_channel_is_read_as_often_as_wanted(tmp_path: Path, channel: str, sign: int) -> None:
    clips = Clips(write(tmp_path, str(tmp_path / "a.wav")))
    for begin_s, end_s, seconds in ((1.0, 2.0, [2]), (0.5, 1.5, [1, 2]), (2.5, 9.0, [3])):
        found = clips.read("r", channel, begin_s, end_s)
        assert found is not None
        samples, rate_hz = found
        assert rate_hz == RATE_HZ
        assert len(samples) == round((min(end_s, 3.0) - begin_s) * RATE_HZ)
        assert list(dict.fromkeys((samples * 16).tolist())) == [sign * second for second in seconds]


def test_what_is_not_on_this_machine_or_cannot_be_read_has_no_audio(tmp_path: Path) -> None:
    assert Clips(write(tmp_path, str(tmp_path / "a.wav"))).read("other", "A", 0, 1) is None
    assert Clips(write(tmp_path, str(tmp_path / "gone.wav"))).read("r", "A", 0, 1) is None
    assert Clips(write(tmp_path, "https://localhost:1/a.wav", "url")).read("r", "A", 0, 1) is None
    whole = Clips(write(tmp_path, str(tmp_path / "a.wav")))
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    assert whole.read("r", "A", 0, 1) is None


def test_a_folder_without_recordings_is_named(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"recordings\.jsonl\.gz: missing"):
        Clips(tmp_path)
