"""Measures of sounds whose measures are known, and stretches of recordings that a manifest folder lists."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import resample_poly

from asrtool.data.audio.excerpts import Clips
from asrtool.data.audio.quality import CLIP_LEVEL, CLIP_RUN, FLOOR_DB, bandwidth_hz, clipped_fraction, levels_of
from asrtool.errors import AsrtoolError

RATE_HZ = 16000


def sine(amplitude: float, seconds: float, hz: float = 440.0) -> np.ndarray:
    return (amplitude * np.sin(2 * np.pi * hz * np.arange(round(seconds * RATE_HZ)) / RATE_HZ)).astype(np.float32)


def test_levels_of_a_tone_between_pauses_are_those_of_both() -> None:
    noise = np.random.default_rng(0).normal(0, 0.001, RATE_HZ).astype(np.float32)
    peak_db, speech_db, noise_db = levels_of(np.concatenate([noise, sine(0.5, 1)]), RATE_HZ)
    assert peak_db == pytest.approx(20 * np.log10(0.5), abs=0.1)
    assert speech_db == pytest.approx(20 * np.log10(0.5 / np.sqrt(2)), abs=0.1)
    assert noise_db == pytest.approx(-60, abs=1)


@pytest.mark.parametrize("length", [1, 5, 319, 320, 321])
def test_silence_has_the_lowest_level_however_short(length: int) -> None:
    assert levels_of(np.zeros(length, np.float32), RATE_HZ) == (FLOOR_DB,) * 3


@given(st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.25, 0.5]), min_size=1, max_size=60))
def test_clipped_are_runs_at_either_end_and_nothing_else(values: list[float]) -> None:
    clipped, i = 0, 0
    while i < len(values):
        j = i
        while j < len(values) and values[j] == values[i]:
            j += 1
        for extreme in {max(values), min(values)}:
            if values[i] == extreme and abs(extreme) >= CLIP_LEVEL and j - i >= CLIP_RUN:
                clipped += j - i
        i = j
    assert clipped_fraction(np.array(values, np.float32)) == pytest.approx(clipped / len(values))


def test_speech_recorded_at_half_the_rate_has_half_the_bandwidth() -> None:
    narrow = np.random.default_rng(0).normal(0, 0.1, 8000)
    assert bandwidth_hz(narrow, 8000) == 4000
    assert bandwidth_hz(resample_poly(narrow, 2, 1), RATE_HZ) == pytest.approx(4000, abs=700)
    assert bandwidth_hz(np.zeros(1000), RATE_HZ) == 0.0
    assert bandwidth_hz(narrow[:10], 8000) == 4000  # too short to say


CLIP_HZ = 8000


def write(folder: Path, source: str, kind: str = "file", **changed: Any) -> Path:
    """A manifest folder of one recording of 3 s with two channels; each sample says its channel and second."""
    seconds = np.arange(3 * CLIP_HZ) // CLIP_HZ
    soundfile.write(folder / "a.wav", np.stack([seconds + 1, -(seconds + 1)], axis=1) / 16, CLIP_HZ)
    sources = [{"type": kind, "channels": [0, 1], "source": source}]
    entry = {"id": "r", "sources": sources, "sampling_rate": CLIP_HZ, "num_samples": 3 * CLIP_HZ, "duration": 3.0}
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
        assert rate_hz == CLIP_HZ
        assert len(samples) == round((min(end_s, 3.0) - begin_s) * CLIP_HZ)
        assert list(dict.fromkeys((samples * 16).tolist())) == [sign * second for second in seconds]


def test_what_is_not_on_this_machine_or_cannot_be_read_has_no_audio(tmp_path: Path) -> None:
    assert Clips(write(tmp_path, str(tmp_path / "a.wav"))).read("other", "A", 0, 1) is None
    assert Clips(write(tmp_path, str(tmp_path / "gone.wav"))).read("r", "A", 0, 1) is None
    assert Clips(write(tmp_path, "https://localhost:1/a.wav", "url")).read("r", "A", 0, 1) is None
    whole = Clips(write(tmp_path, str(tmp_path / "a.wav")))
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    assert whole.read("r", "A", 0, 1) is None
    with pytest.raises(AsrtoolError, match=r"recordings\.jsonl\.gz: missing"):
        Clips(tmp_path / "nowhere")
