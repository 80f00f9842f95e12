"""What is measured of sound, against sounds whose measures are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import resample_poly

from asrtool.data.audio.quality import CLIP_LEVEL, CLIP_RUN, FLOOR_DB, bandwidth_hz, clipped_fraction, levels_of

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


def test_a_tone_is_clipped_where_it_is_cut_off_and_only_there() -> None:
    loud = sine(1.0, 1, 437.0)
    assert clipped_fraction(loud) == 0
    cut = np.clip(loud, -0.7, 0.7)
    assert clipped_fraction(cut) == pytest.approx(np.mean(np.abs(loud) >= 0.7), abs=0.01)
    assert clipped_fraction(cut / 100) == 0  # so quiet, nothing cuts it off


def test_speech_recorded_at_half_the_rate_has_half_the_bandwidth() -> None:
    narrow = np.random.default_rng(0).normal(0, 0.1, 8000)
    assert bandwidth_hz(narrow, 8000) == 4000
    assert bandwidth_hz(resample_poly(narrow, 2, 1), RATE_HZ) == pytest.approx(4000, abs=700)
    assert bandwidth_hz(np.zeros(1000), RATE_HZ) == 0.0
    assert bandwidth_hz(narrow[:10], 8000) == 4000  # too short to say
