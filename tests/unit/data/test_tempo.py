"""Tempo: the length changes, the pitch does not, and all is said in order."""

from __future__ import annotations

import numpy as np
import pytest

from asrtool.data.augment.audio import change_tempo

RATE_HZ = 8000


def tone(hz: float, duration_s: float) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * hz * np.arange(round(duration_s * RATE_HZ)) / RATE_HZ)).astype(np.float32)


def pitch_hz(samples: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * RATE_HZ / len(samples))


@pytest.mark.parametrize("tempo", [0.7, 0.9, 1.1, 1.5])
@pytest.mark.parametrize("hz", [90, 210, 1500])
def test_a_tone_keeps_its_pitch_and_loudness(tempo: float, hz: float) -> None:
    samples = tone(hz, 2.0)
    changed = change_tempo(samples, round(len(samples) / tempo), RATE_HZ)
    assert len(changed) == round(len(samples) / tempo)
    assert changed.dtype == np.float32
    assert pitch_hz(changed) == pytest.approx(hz, rel=0.02)
    assert changed.std() == pytest.approx(samples.std(), rel=0.05)


@pytest.mark.parametrize("tempo", [0.8, 1.25])
def test_what_is_said_when_moves_with_the_tempo(tempo: float) -> None:
    """Each half second has a pitch of its own."""
    pitches = [300.0, 700.0, 500.0, 1100.0]
    samples = np.concatenate([tone(hz, 0.5) for hz in pitches])
    changed = change_tempo(samples, round(len(samples) / tempo), RATE_HZ)
    part = len(changed) // 4
    for i, hz in enumerate(pitches):
        middle = changed[i * part + part // 5 : (i + 1) * part - part // 5]
        assert pitch_hz(middle) == pytest.approx(hz, abs=8)


def test_the_same_length_is_the_same_samples() -> None:
    samples = tone(200, 0.3)
    assert change_tempo(samples, len(samples), RATE_HZ) is samples


def test_windows_meet_without_a_step() -> None:
    """Of a tone, no sample is farther from the one before than in the tone itself."""
    samples = tone(150, 1.0)
    changed = change_tempo(samples, 9000, RATE_HZ)
    assert np.abs(np.diff(changed[100:-200])).max() < 1.3 * np.abs(np.diff(samples)).max()


@pytest.mark.parametrize(("before", "after"), [(1, 2), (50, 45), (240, 300), (1001, 501)])
def test_the_shortest_utterances_and_silence_are_changed_too(before: int, after: int) -> None:
    assert len(change_tempo(np.ones(before, np.float32), after, RATE_HZ)) == after
    silence = change_tempo(np.zeros(before, np.float32), after, RATE_HZ)
    assert not silence.any()
