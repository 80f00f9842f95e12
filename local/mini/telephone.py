"""Sounds that are not words, and simulated telephone lines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import butter, lfilter, sosfilt

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


_BAND = butter(3, (300, 3400), btype="bandpass", fs=SAMPLING_RATE_HZ, output="sos")
HUM_HZ = (60.0, 120.0, 180.0)


@dataclass(frozen=True)
class LineQuality:
    """Ranges from which the line of one side is drawn."""

    level_db: tuple[float, float]  # level of speech, below full scale
    snr_db: tuple[float, float]  # speech to noise
    crosstalk_db: tuple[float, float]  # the far side, relative to its own level
    hum_db: tuple[float, float]  # below full scale


@dataclass(frozen=True)
class Line:
    """Line of one side; fields as in LineQuality, and the tilt (0 flat).

    A positive tilt is duller.
    """

    level_db: float
    snr_db: float
    crosstalk_db: float
    hum_db: float
    tilt: float


def draw_line(quality: LineQuality, rng: np.random.Generator) -> Line:
    """Draw a random line within the ranges of `quality`."""
    ranges = (quality.level_db, quality.snr_db, quality.crosstalk_db, quality.hum_db, (-0.3, 0.3))
    return Line(*(rng.uniform(*range_) for range_ in ranges))


def through_lines(speech: np.ndarray, lines: tuple[Line, Line], rng: np.random.Generator) -> np.ndarray:
    """Return both sides as recorded: float (num_samples, 2) to int16, same shape."""
    heard = [sosfilt(_BAND, lfilter([1.0], [1.0, -lines[side].tilt], speech[:, side])) for side in range(2)]
    levelled = [_at_level(heard[side], lines[side].level_db) for side in range(2)]
    sides = [_add_line(levelled[side], levelled[1 - side], lines[side], rng) for side in range(2)]
    return np.clip(np.rint(np.stack(sides, axis=1) * 32767), -32768, 32767).astype(np.int16)


def _at_level(speech: np.ndarray, level_db: float) -> np.ndarray:
    """Scale speech so that the root mean square of non-silence is `level_db`."""
    frames = speech[: len(speech) // 80 * 80].reshape(-1, 80)
    power = (frames**2).mean(axis=1)
    active = power[power > 1e-3 * power.max()]
    return speech * 10 ** (level_db / 20) / np.sqrt(active.mean())


def _add_line(near: np.ndarray, far: np.ndarray, line: Line, rng: np.random.Generator) -> np.ndarray:
    time_s = np.arange(len(near)) / SAMPLING_RATE_HZ
    noise = sosfilt(_BAND, lfilter([1.0], [1.0, -0.5], rng.standard_normal(len(near))))
    noise *= 10 ** ((line.level_db - line.snr_db) / 20) / np.sqrt((noise**2).mean())
    hum = np.zeros(len(near))
    for hz in HUM_HZ:
        hum += HUM_HZ[0] / hz * np.sin(2 * np.pi * hz * time_s + rng.uniform(0, 2 * np.pi))
    return near + 10 ** (line.crosstalk_db / 20) * far + noise + 10 ** (line.hum_db / 20) * hum
