"""Fingerprints of speech that survive changes of speed, gain and codec.

Peaks of a spectrogram (Wang, "An industrial-strength audio search algorithm", 2003) are joined to triplets, whose
ratios of frequencies and of times do not depend on speed (Six and Leman, "Panako", 2014).

Letters in names: S samples, T frames, F bins, P peaks, H triplets, M matches.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft
from scipy.ndimage import maximum_filter

RATE_HZ = 8000  # that samples have, or a multiple; what is above the telephone's band is not looked at
WINDOW = 512  # samples of RATE_HZ: 64 ms, long enough to separate the harmonics of a voice
HOP = 128
BAND = slice(13, 218)  # bins from 200 to 3,400 Hz
FLOOR = 9.0  # peaks lie at most so far below the highest of the utterance, in nats of power
REACH = 5  # frames and bins to both sides that a peak is higher than
PEAKS_PER_S = 30.0  # the highest

NEAREST_S, FARTHEST_S = 0.08, 1.2  # of the other two peaks of a triplet from its first one
FAN = 3  # peaks behind the first one that are paired, the highest: they outlive codecs, whatever lies between
AHEAD = 64  # peaks behind the first one that are looked at

# How finely what is the same at every speed is kept, in cells: the logarithms of both ratios of frequencies, the ratio
# of times, the logarithm of the cycles of the first peak's frequency from it to the last one.
OCTAVE_CELLS, RATIO_CELLS, CYCLE_CELLS = 28, 16, 9
STRIDES = (2**12 * 2**8, 2**12, 2**7, 1)  # room for twice 8, 5 and 7 bits: what is in the band, and a cell beside it
LOWEST = (-128, -128, -1, 0)  # what the first cell of each stands for
PITCH_STEPS, PITCH_BITS = 128, 10  # an octave of the first peak's frequency, which is within a cell the order
LOWEST_PITCH = 7.0  # octaves: 128 Hz
LARGEST_CHANGE = 0.17  # octaves of frequency between what is matched: a factor of 1.125


@dataclass(frozen=True)
class Triplets:
    """Triplets of one or many utterances; arrays of one length."""

    keys_H: np.ndarray  # int64: the cell, and behind it, in PITCH_BITS, the pitch
    times_H: np.ndarray  # float32: seconds of the first peak
    owners_H: np.ndarray  # int32: number of the utterance

    def __len__(self) -> int:
        return len(self.keys_H)

    def take(self, which: np.ndarray) -> Triplets:
        """Return the triplets at positions or a mask."""
        return Triplets(self.keys_H[which], self.times_H[which], self.owners_H[which])

    def thinned(self, one_in: int) -> Triplets:
        """Return the triplets in one of `one_in` cells, the same for all utterances."""
        mixed_H = (self.keys_H >> PITCH_BITS).astype(np.uint64) * 2654435761 % 2**32  # Knuth's multiplicative hash
        return self.take((mixed_H >> 8) % one_in == 0)


def log_spectrogram(samples_S: np.ndarray, rate_hz: int = RATE_HZ) -> np.ndarray:
    """Return the log power in BAND, float32 (T, F); no frame below a window."""
    return np.asarray(np.log(_power(samples_S, rate_hz)))


def _power(samples_S: np.ndarray, rate_hz: int) -> np.ndarray:
    """Return the power spectrum with window and hop scaled to the rate.

    This gives the same bins without resampling, for multiples of RATE_HZ.
    """
    times = rate_hz // RATE_HZ
    if len(samples_S) < WINDOW * times:
        return np.zeros((0, BAND.stop - BAND.start), dtype=np.float32)
    frames_TW = np.lib.stride_tricks.sliding_window_view(samples_S, WINDOW * times)[:: HOP * times]
    spectra_TF = fft.rfft(frames_TW * _window(WINDOW * times), axis=1)[:, BAND]
    power_TF = np.square(spectra_TF.real)
    power_TF += np.square(spectra_TF.imag)
    return np.maximum(power_TF, 1e-9, out=power_TF)


@functools.lru_cache(4)
def _window(num_samples: int) -> np.ndarray:
    """Return a window of the same level at every rate."""
    return (np.hanning(num_samples) * (WINDOW / num_samples)).astype(np.float32)


def find_peaks(samples_S: np.ndarray, rate_hz: int = RATE_HZ) -> np.ndarray:
    """Return seconds, log2 of frequencies and log powers of peaks, float32 (3, P).

    Peaks are sorted by time and interpolated by a parabola. The rate is a multiple of RATE_HZ.
    """
    power_TF = _power(samples_S, rate_hz)
    if len(power_TF) < 3:
        return np.zeros((3, 0), dtype=np.float32)
    inner_TF = power_TF[1:-1, 1:-1]  # a peak has neighbours
    is_peak_TF = inner_TF == maximum_filter(power_TF, 2 * REACH + 1, mode="constant")[1:-1, 1:-1]
    is_peak_TF &= inner_TF > power_TF.max() * np.float32(np.exp(-FLOOR))
    t_P, f_P = (places + 1 for places in np.nonzero(is_peak_TF))
    strongest = np.argsort(-power_TF[t_P, f_P], kind="stable")[: int(PEAKS_PER_S * len(samples_S) / rate_hz) + 1]
    t_P, f_P = t_P[strongest], f_P[strongest]
    seconds_P = (t_P + _top(power_TF, t_P, f_P, 1, 0)) * HOP / RATE_HZ
    octaves_P = np.log2((f_P + _top(power_TF, t_P, f_P, 0, 1) + BAND.start) * RATE_HZ / WINDOW)
    order = np.argsort(seconds_P, kind="stable")
    return np.stack([seconds_P, octaves_P, np.log(power_TF[t_P, f_P])])[:, order].astype(np.float32)


def _top(power_TF: np.ndarray, t_P: np.ndarray, f_P: np.ndarray, dt: int, df: int) -> np.ndarray:
    """Return the offset, -0.5 to 0.5, of a parabola's top through a peak on an axis."""
    before_P, at_P, after_P = (np.log(power_TF[t_P + k * dt, f_P + k * df]) for k in (-1, 0, 1))
    bend_P = np.minimum(before_P - 2 * at_P + after_P, -1e-6)
    return np.asarray(np.clip((before_P - after_P) / (2 * bend_P), -0.5, 0.5))


def find_triplets(peaks: Sequence[np.ndarray], first: int = 0) -> Triplets:
    """Return the triplets of the peaks (3, P) of utterances from number `first` on."""
    values_H4, pitches_H, times_H, owners_H = _measured(peaks)
    return Triplets(_keys(np.floor(values_H4), pitches_H), times_H, owners_H + np.int32(first))


def find_queries(peaks: Sequence[np.ndarray]) -> Triplets:
    """Return triplets in all neighbouring cells, which a small change may reach."""
    values_H4, pitches_H, times_H, owners_H = _measured(peaks)
    lower_H4 = np.floor(values_H4)
    keys_CH = _keys(lower_H4, pitches_H)[None]
    to_nearer_4H = np.where(values_H4 - lower_H4 < 0.5, -1, 1).T * np.array(STRIDES)[:, None] * 2**PITCH_BITS
    for moved_H in to_nearer_4H:
        keys_CH = np.concatenate([keys_CH, keys_CH + moved_H])
    return Triplets(keys_CH.reshape(-1), *(np.tile(values_H, len(keys_CH)) for values_H in (times_H, owners_H)))


def _measured(peaks: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return cells (H, 4), octaves and seconds of first peaks, and utterances."""
    seconds_P, octaves_P, levels_P = np.concatenate(peaks, axis=1).astype(np.float64)
    owners_P = np.repeat(np.arange(len(peaks), dtype=np.int32), [of_one.shape[1] for of_one in peaks])
    i, j, k = _joined_peaks(seconds_P, levels_P, owners_P).T
    spans_H = seconds_P[k] - seconds_P[i]
    values_H4 = np.stack(
        [
            (octaves_P[j] - octaves_P[i]) * OCTAVE_CELLS,
            (octaves_P[k] - octaves_P[i]) * OCTAVE_CELLS,
            (seconds_P[j] - seconds_P[i]) / spans_H * RATIO_CELLS,
            (octaves_P[i] + np.log2(spans_H)) * CYCLE_CELLS,
        ],
        axis=1,
    )
    return values_H4, octaves_P[i], seconds_P[i].astype(np.float32), owners_P[i]


def _joined_peaks(seconds_P: np.ndarray, levels_P: np.ndarray, owners_P: np.ndarray) -> np.ndarray:
    """Return positions of the peaks of triplets (H, 3).

    Each peak is joined with two of the FAN highest after it in its utterance.
    """
    num = len(seconds_P)
    line_P = seconds_P + owners_P * 2.0**20  # of all utterances one behind the other, far apart
    behind_PK = np.searchsorted(line_P, line_P + NEAREST_S)[:, None] + np.arange(AHEAD)
    clipped_PK = np.minimum(behind_PK, max(0, num - 1))
    near_PK = (behind_PK < num) & (line_P[clipped_PK] - line_P[:, None] < FARTHEST_S)
    levels_PK = np.where(near_PK, levels_P[clipped_PK], -np.inf)
    chosen_PN = np.argpartition(-levels_PK, FAN - 1, axis=1)[:, :FAN]
    there_PN = np.take_along_axis(near_PK, chosen_PN, axis=1)
    chosen_PN = np.sort(np.where(there_PN, np.take_along_axis(behind_PK, chosen_PN, axis=1), num), axis=1)
    triplets_H3 = np.concatenate(
        [
            np.stack([np.arange(num), chosen_PN[:, a], chosen_PN[:, b]], axis=1)
            for a, b in itertools.combinations(range(FAN), 2)
        ]
    )
    return triplets_H3[triplets_H3[:, 2] < num]


def _keys(values_H4: np.ndarray, pitches_H: np.ndarray) -> np.ndarray:
    """Whole numbers of cells, and octaves, as one number."""
    cells_H = ((values_H4 - np.array(LOWEST)) @ np.array(STRIDES)).astype(np.int64)
    return cells_H * 2**PITCH_BITS + ((pitches_H - LOWEST_PITCH) * PITCH_STEPS).astype(np.int64)
