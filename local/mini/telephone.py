"""Simulate a telephone line: level, handset, band, noise, hum, leakage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import butter, lfilter, sosfilt

from asrtool.local.mini.espeak import SAMPLING_RATE_HZ

_BAND = butter(3, (300, 3400), btype="bandpass", fs=SAMPLING_RATE_HZ, output="sos")
HUM_HZ = (60.0, 120.0, 180.0)


@dataclass(frozen=True)
class LineQuality:
    """Ranges from which the line of one side is drawn."""

    level_db: tuple[float, float]  # of speech, below full scale
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
    return Line(
        level_db=rng.uniform(*quality.level_db),
        snr_db=rng.uniform(*quality.snr_db),
        crosstalk_db=rng.uniform(*quality.crosstalk_db),
        hum_db=rng.uniform(*quality.hum_db),
        tilt=rng.uniform(-0.3, 0.3),
    )


def through_lines(speech: np.ndarray, lines: tuple[Line, Line], rng: np.random.Generator) -> np.ndarray:
    """Return both sides as recorded: float (num_samples, 2) to int16, same shape."""
    levelled = [_at_level(_handset(speech[:, side], lines[side]), lines[side].level_db) for side in range(2)]
    sides = [_add_line(levelled[side], levelled[1 - side], lines[side], rng) for side in range(2)]
    return np.clip(np.rint(np.stack(sides, axis=1) * 32767), -32768, 32767).astype(np.int16)


def _handset(speech: np.ndarray, line: Line) -> np.ndarray:
    return sosfilt(_BAND, lfilter([1.0], [1.0, -line.tilt], speech))


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
