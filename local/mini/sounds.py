"""Sounds that are not words: rustles, laughter, breath, cough, lip smack; 8 kHz."""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

from asrtool.local.mini.espeak import SAMPLING_RATE_HZ

IN_SPEECH = ("noise", "laughter", "breath", "cough", "lipsmack")
ALONE = ("noise", "laughter", "breath", "mumble")


def make_sound(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return a sound of `kind`, float32 (num_samples,), as loud as loud speech."""
    make = {
        "noise": _knocks,
        "laughter": _laughter,
        "breath": _breath,
        "cough": _cough,
        "lipsmack": _lipsmack,
        "mumble": _mumble,
    }[kind]
    sound = make(rng)
    return (sound * (0.35 * rng.uniform(0.7, 1.2) / np.abs(sound).max())).astype(np.float32)


def _time_s(duration_s: float) -> np.ndarray:
    return np.arange(int(duration_s * SAMPLING_RATE_HZ)) / SAMPLING_RATE_HZ


def _hiss(time_s: np.ndarray, smoothing: float, rng: np.random.Generator) -> np.ndarray:
    """Return white noise through a one-pole low pass; `smoothing` 0 leaves it white."""
    return lfilter([1 - smoothing], [1, -smoothing], rng.standard_normal(len(time_s)))


def _knocks(rng: np.random.Generator) -> np.ndarray:
    """Return two or three knocks on a hollow object."""
    time_s = _time_s(rng.uniform(0.35, 0.6))
    sound = 0.02 * _hiss(time_s, 0.5, rng)
    for start_s in np.sort(rng.uniform(0, time_s[-1] - 0.15, size=rng.integers(2, 4))):
        since_s = np.maximum(time_s - start_s, 0)
        ring = np.sin(2 * np.pi * rng.uniform(900, 1800) * since_s) + _hiss(time_s, 0.2, rng)
        sound += (time_s >= start_s) * np.exp(-since_s / 0.03) * ring
    return sound


def _laughter(rng: np.random.Generator) -> np.ndarray:
    """Return laughter: voiced puffs, four to six a second, with falling pitch."""
    time_s = _time_s(rng.uniform(0.6, 1.0))
    pitch_hz = rng.uniform(170, 300) * (1 - 0.25 * time_s / time_s[-1])
    buzz = np.sign(np.sin(2 * np.pi * np.cumsum(pitch_hz) / SAMPLING_RATE_HZ)) + 0.5 * _hiss(time_s, 0.0, rng)
    puffs = np.maximum(np.sin(2 * np.pi * rng.uniform(4, 6) * time_s), 0) ** 0.7
    return puffs * _resonate(buzz, 750) * np.linspace(1, 0.5, len(time_s))


def _breath(rng: np.random.Generator) -> np.ndarray:
    time_s = _time_s(rng.uniform(0.3, 0.55))
    return 0.3 * np.sin(np.pi * time_s / time_s[-1]) ** 2 * _resonate(_hiss(time_s, 0.0, rng), rng.uniform(1200, 1700))


def _cough(rng: np.random.Generator) -> np.ndarray:
    time_s = _time_s(0.5)
    bursts = np.exp(-time_s / 0.06) + (time_s > 0.25) * np.exp(-np.maximum(time_s - 0.25, 0) / 0.06)
    return bursts * _resonate(_hiss(time_s, 0.3, rng), rng.uniform(500, 900))


def _lipsmack(rng: np.random.Generator) -> np.ndarray:
    time_s = _time_s(0.12)
    return np.exp(-time_s / 0.012) * _hiss(time_s, 0.0, rng) + 0.01 * _hiss(time_s, 0.3, rng)


def _mumble(rng: np.random.Generator) -> np.ndarray:
    """Return a low voice without intelligible words."""
    time_s = _time_s(rng.uniform(0.5, 0.8))
    buzz = np.sign(np.sin(2 * np.pi * rng.uniform(90, 180) * time_s))
    syllables = 0.4 + 0.6 * np.sin(2 * np.pi * 3.5 * time_s) ** 2
    return 0.4 * syllables * np.sin(np.pi * time_s / time_s[-1]) * _resonate(buzz, 400)


def _resonate(sound: np.ndarray, center_hz: float) -> np.ndarray:
    """Apply a formant: a two-pole resonance of about 250 Hz width."""
    radius = np.exp(-np.pi * 250 / SAMPLING_RATE_HZ)
    angle = 2 * np.pi * center_hz / SAMPLING_RATE_HZ
    return lfilter([1 - radius], [1, -2 * radius * np.cos(angle), radius**2], sound)
