"""Similarity of two aligned utterances: shared peaks, spectral correlation.

Letters in names: P peaks, S samples, T frames, B bands, M matches.
"""

from __future__ import annotations

import numpy as np

from asrtool.data.duplicates.fingerprint import BAND, HOP, RATE_HZ, WINDOW
from asrtool.data.duplicates.fingerprint_index import Alignment

BANDS = 40
EVERY = 2  # frames that are compared
LOWEST_HZ, HIGHEST_HZ = 260.0, 2700.0  # with room for a change of a third of an octave within the fingerprint's band
RANGE = 9.0  # nats of power below the highest value, under which there is no more than noise of a codec
LEAST_OVERLAP_S = 0.5
PEAK_S, PEAK_OCTAVES = 0.024, 0.05  # that a peak may lie beside the other one


def likeness(one_TF: np.ndarray, other_TF: np.ndarray, alignment: Alignment) -> float:
    """Return the correlation over bands and frames, each band about its mean.

    It is 0 for less than half a second, or if less than half of the shorter utterance is covered. `alignment` maps
    `one_TF` to `other_TF`.
    """
    places_T = np.arange(0, len(one_TF), EVERY) * 2**alignment.time_scale + alignment.offset_s * RATE_HZ / HOP
    both = (places_T >= 0) & (places_T <= len(other_TF) - 1)
    overlap, shorter = both.sum() * EVERY, min(len(one_TF), len(other_TF) / 2**alignment.time_scale)
    if overlap * HOP < LEAST_OVERLAP_S * RATE_HZ or overlap < shorter / 2:
        return 0.0
    octaves_B = np.linspace(np.log2(LOWEST_HZ), np.log2(HIGHEST_HZ), BANDS)
    one_TB = _read(one_TF, EVERY * np.flatnonzero(both), octaves_B)
    other_TB = _read(other_TF, places_T[both], octaves_B - alignment.time_scale)
    covariance = float((one_TB * other_TB).mean())
    return covariance / max(float(np.sqrt((one_TB**2).mean() * (other_TB**2).mean())), 1e-9)


def shared_peaks(one_3P: np.ndarray, other_3P: np.ndarray, alignment: Alignment) -> float:
    """Return the fraction of peaks in the overlap that the other has too, or 0.

    Both are seconds, log2 of frequencies and more, by time.
    """
    times_P = one_3P[0] * 2**alignment.time_scale + alignment.offset_s
    both = (times_P >= other_3P[0, 0] - PEAK_S) & (times_P <= other_3P[0, -1] + PEAK_S)
    times_P, octaves_P = times_P[both], one_3P[1, both] - alignment.time_scale
    begins_P, ends_P = (np.searchsorted(other_3P[0], times_P + shift) for shift in (-PEAK_S, PEAK_S))
    nums_P = ends_P - begins_P
    near_M = np.arange(nums_P.sum()) - np.repeat(np.cumsum(nums_P) - ends_P, nums_P)
    mine_M = np.repeat(np.arange(len(times_P)), nums_P)
    has_M = np.abs(other_3P[1, near_M] - octaves_P[mine_M]) < PEAK_OCTAVES
    return len(np.unique(mine_M[has_M])) / max(1, len(times_P))


def _read(logs_TF: np.ndarray, places_T: np.ndarray, octaves_B: np.ndarray) -> np.ndarray:
    """Interpolate a spectrogram at frames and frequencies, (T, B), minus band means."""
    bins_B = 2**octaves_B * WINDOW / RATE_HZ - BAND.start
    rows_T = np.minimum(places_T.astype(np.int64), len(logs_TF) - 2)
    part_T1 = (places_T - rows_T)[:, None]
    frames_TF = logs_TF[rows_T] * (1 - part_T1) + logs_TF[rows_T + 1] * part_T1
    columns_B = bins_B.astype(np.int64)
    part_B = bins_B - columns_B
    values_TB = frames_TF[:, columns_B] * (1 - part_B) + frames_TF[:, columns_B + 1] * part_B
    values_TB = np.maximum(values_TB, values_TB.max() - RANGE)
    return np.asarray(values_TB - values_TB.mean(axis=0))
