"""Fingerprints of speech: what is alike in two recordings of one sound, whatever its speed, gain or codec.

Peaks of a spectrogram (Wang, "An industrial-strength audio search algorithm", 2003) are joined to triplets, of which
ratios of frequencies and of times are kept, which are the same at another speed (Six and Leman, "Panako", 2014).

Letters in names: S samples, T frames, F bins, P peaks, H triplets, M matches.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import fft

RATE_HZ = 8000  # that samples have, or a multiple; what is above the telephone's band is not looked at
WINDOW = 512  # samples of RATE_HZ: 64 ms, long enough to separate the harmonics of a voice
HOP = 128
BAND = slice(13, 218)  # bins from 200 to 3,400 Hz
FLOOR = 7.0  # peaks lie at most so far below the highest of the utterance, in nats of power
REACH = 5  # frames and bins to both sides that a peak is higher than
PEAKS_PER_S = 30.0  # the highest

NEAREST_S, FARTHEST_S = 0.08, 0.8  # of the other two peaks of a triplet from its first one
FAN = 4  # peaks behind the first one that are paired
OCTAVE_CELLS, RATIO_CELLS = 12, 10  # how finely ratios of frequencies and of times are kept
PITCH_CELLS = 2  # an octave, so coarsely that a change of speed reaches the next one at most
SIDES = (104, 104, 13, 11)  # numbers of cells: two ratios of frequencies in the band, one of times, the pitch
LOWEST = (-52, -52, -1, 14)  # what the first cell of each stands for; there is room for one beside every value
STRIDES = (SIDES[1] * SIDES[2] * SIDES[3], SIDES[2] * SIDES[3], SIDES[3], 1)
NUM_CELLS = SIDES[0] * STRIDES[0]

LARGEST_CHANGE = 0.33  # octaves of frequency or of time between what is matched: a factor of 1.26
PITCH_TOLERANCE = 0.1  # octaves by which one may differ from the other: a change of speed changes both alike
SCALE_CELL, OFFSET_CELL_S = 0.05, 0.25  # octaves and seconds by which votes may differ
MOST_OFFSETS = 2**15  # offsets that differ: hours
MIN_VOTES, CANDIDATES = 8, 2
COUNTERS = 2**14  # that utterances share, to leave out at once those that cannot have MIN_VOTES

TRIPLET_COLUMNS = ("cells_H", "times_H", "spans_H", "octaves_H")
INDEX_COLUMNS = ("begins", "utterances_H")


@dataclass(frozen=True)
class Alignment:
    """How one utterance lies in another: the time t of one is `offset_s` + t * 2**`time_scale` of the other."""

    other: int  # number of the other utterance
    votes: int  # triplets that say so
    time_scale: float  # octaves
    frequency_scale: float  # octaves that the other one is higher
    offset_s: float


@dataclass(frozen=True)
class Triplets:
    """Of one utterance, or of many; arrays of one length."""

    cells_H: np.ndarray  # int32: the ratios, as one number
    times_H: np.ndarray  # float32: seconds of the first peak
    spans_H: np.ndarray  # float32: log2 of the seconds from it to the last one
    octaves_H: np.ndarray  # float32: log2 of the frequency of the first peak

    def __len__(self) -> int:
        return len(self.cells_H)

    def take(self, which: np.ndarray) -> Triplets:
        """Those at the places `which`, or where it is true."""
        return Triplets(self.cells_H[which], self.times_H[which], self.spans_H[which], self.octaves_H[which])

    def thinned(self, one_in: int) -> Triplets:
        """Those in one of so many cells, the same cells of every utterance."""
        mixed_H = (self.cells_H.astype(np.uint64) * 2654435761 % 2**32) >> 8  # Knuth's multiplicative hash
        return self.take(mixed_H % one_in == 0)


def log_spectrogram(samples_S: np.ndarray, rate_hz: int = RATE_HZ) -> np.ndarray:
    """Natural logarithm of the power in BAND, float32 of shape (T, F); of less than a window no frame."""
    logs_TF: np.ndarray = np.log(_power(samples_S, rate_hz))
    return logs_TF


def _power(samples_S: np.ndarray, rate_hz: int) -> np.ndarray:
    """Samples of a multiple of RATE_HZ have as many more in a window and a hop: the same bins, without resampling."""
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
    """Of one level at every sampling rate."""
    return (np.hanning(num_samples) * (WINDOW / num_samples)).astype(np.float32)


def find_peaks(samples_S: np.ndarray, rate_hz: int = RATE_HZ) -> tuple[np.ndarray, np.ndarray]:
    """Seconds and log2 of frequencies of the peaks, by time, between frames and bins by a parabola through three.

    Of an utterance, float32 samples of a multiple of RATE_HZ.
    """
    power_TF = _power(samples_S, rate_hz)
    if len(power_TF) < 3:
        return np.zeros(0), np.zeros(0)
    inner_TF = power_TF[1:-1, 1:-1]  # a peak has neighbours
    is_peak_TF = inner_TF == _highest_near(power_TF)[1:-1, 1:-1]
    is_peak_TF &= inner_TF > power_TF.max() * np.float32(np.exp(-FLOOR))
    t_P, f_P = (places + 1 for places in np.nonzero(is_peak_TF))
    strongest = np.argsort(-power_TF[t_P, f_P], kind="stable")[: int(PEAKS_PER_S * len(samples_S) / rate_hz) + 1]
    t_P, f_P = t_P[strongest], f_P[strongest]
    seconds_P = (t_P + _top(power_TF, t_P, f_P, 1, 0)) * HOP / RATE_HZ
    octaves_P = np.log2((f_P + _top(power_TF, t_P, f_P, 0, 1) + BAND.start) * RATE_HZ / WINDOW)
    order = np.argsort(seconds_P, kind="stable")
    return seconds_P[order], octaves_P[order]


def _highest_near(power_TF: np.ndarray) -> np.ndarray:
    """The highest value of up to REACH frames and bins to both sides, by maxima of 2, 4, 8 and 11 in a row."""
    padded = np.pad(power_TF, REACH)
    for _ in range(2):  # along the first axis, then along the other
        for step in (1, 2, 4, 2 * REACH + 1 - 8):
            padded = np.maximum(padded[:-step], padded[step:])
        padded = padded.T
    return padded


def _top(power_TF: np.ndarray, t_P: np.ndarray, f_P: np.ndarray, dt: int, df: int) -> np.ndarray:
    """Where, from -0.5 to 0.5, the parabola through logarithms of a peak and its neighbours on one axis is highest."""
    before_P, at_P, after_P = (np.log(power_TF[t_P + k * dt, f_P + k * df]) for k in (-1, 0, 1))
    bend_P = np.minimum(before_P - 2 * at_P + after_P, -1e-6)
    return np.asarray(np.clip((before_P - after_P) / (2 * bend_P), -0.5, 0.5))


def find_triplets(seconds_P: np.ndarray, octaves_P: np.ndarray) -> Triplets:
    """Of the peaks of an utterance."""
    values_H4, *rest = _joined(seconds_P, octaves_P)
    return Triplets(_cells(np.floor(values_H4)), *rest)


def find_queries(seconds_P: np.ndarray, octaves_P: np.ndarray) -> Triplets:
    """As `find_triplets`, each with all cells that its ratios lie next to, of which a small change may choose any."""
    values_H4, *rest = _joined(seconds_P, octaves_P)
    lower_H4 = np.floor(values_H4)
    to_nearer_4H = np.where(values_H4 - lower_H4 < 0.5, -1, 1).T * np.array(STRIDES)[:, None]
    cells_CH = _cells(lower_H4)[None]
    for moved_H in to_nearer_4H.astype(np.int32):
        cells_CH = np.concatenate([cells_CH, cells_CH + moved_H])
    return Triplets(cells_CH.reshape(-1), *(np.tile(values_H, len(cells_CH)) for values_H in rest))


def _joined(seconds_P: np.ndarray, octaves_P: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Ratios and pitch in cells, (H, 4), and times, spans and octaves of the triplets of these peaks."""
    behind_P = np.searchsorted(seconds_P, seconds_P + NEAREST_S)
    firsts_P = np.arange(len(seconds_P))
    pairs = [(a, b) for b in range(1, FAN) for a in range(b)]
    triplets_H3 = np.concatenate([np.stack([firsts_P, behind_P + a, behind_P + b], axis=1) for a, b in pairs])
    i, j, k = triplets_H3[triplets_H3[:, 2] < len(seconds_P)].T
    near = seconds_P[k] - seconds_P[i] < FARTHEST_S
    i, j, k = i[near], j[near], k[near]
    spans_H = seconds_P[k] - seconds_P[i]
    values_H4 = np.stack(
        [
            (octaves_P[j] - octaves_P[i]) * OCTAVE_CELLS,
            (octaves_P[k] - octaves_P[i]) * OCTAVE_CELLS,
            (seconds_P[j] - seconds_P[i]) / spans_H * RATIO_CELLS,
            octaves_P[i] * PITCH_CELLS,
        ],
        axis=1,
    )
    return values_H4, *(values_H.astype(np.float32) for values_H in (seconds_P[i], np.log2(spans_H), octaves_P[i]))


def _cells(values_H4: np.ndarray) -> np.ndarray:
    """Whole numbers of cells as one number, below NUM_CELLS."""
    return np.asarray((values_H4 - np.array(LOWEST)) @ np.array(STRIDES), dtype=np.int32)


@dataclass(frozen=True)
class FingerprintIndex:
    """The triplets of many utterances in the order of their cells, to be searched by those of one."""

    begins: np.ndarray  # int64 (NUM_CELLS + 1,): where the triplets of each cell begin, and after the last one
    utterances_H: np.ndarray  # int32: number of the utterance of each triplet
    triplets: Triplets

    @classmethod
    def of(cls, parts: Sequence[Triplets], nums: Sequence[int] | None = None) -> FingerprintIndex:
        """Of utterances, which are numbered as they come; `parts` may hold several, which have `nums` triplets."""
        columns = [np.concatenate([getattr(t, name) for t in parts]) for name in TRIPLET_COLUMNS]
        lengths = [len(t) for t in parts] if nums is None else nums
        numbers_H = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        order = np.argsort(columns[0], kind="stable")
        begins = np.concatenate([[0], np.cumsum(np.bincount(columns[0], minlength=NUM_CELLS))])
        return cls(begins, numbers_H[order], Triplets(*columns).take(order))

    def save(self, folder: Path) -> None:
        """Write what `load` maps into memory, which processes then share."""
        for name in INDEX_COLUMNS:
            np.save(folder / f"{name}.npy", getattr(self, name))
        for name in TRIPLET_COLUMNS:
            np.save(folder / f"{name}.npy", getattr(self.triplets, name))

    @classmethod
    def load(cls, folder: Path) -> FingerprintIndex:
        """What `save` wrote."""
        files = {name: np.load(folder / f"{name}.npy", "r") for name in (*INDEX_COLUMNS, *TRIPLET_COLUMNS)}
        mapped = {name: file.view(np.ndarray) for name, file in files.items()}  # plain arrays are read faster
        begins, utterances_H = (mapped[name] for name in INDEX_COLUMNS)
        return cls(begins, utterances_H, Triplets(*(mapped[name] for name in TRIPLET_COLUMNS)))

    def alignments(self, queries: Triplets, before: int) -> list[Alignment]:
        """Those with the CANDIDATES utterances in which most triplets agree, at least MIN_VOTES.

        Of the first `before` utterances of the index.
        """
        asked_M, found_M = self._matches(queries.cells_H)
        utterances_M = self.utterances_H[found_M]
        frequency_M = self.triplets.octaves_H[found_M] - queries.octaves_H[asked_M]
        likely = np.flatnonzero((utterances_M < before) & (np.abs(frequency_M) < LARGEST_CHANGE))
        asked_M, found_M, utterances_M, frequency_M = (
            values_M[likely] for values_M in (asked_M, found_M, utterances_M, frequency_M)
        )
        time_M = self.triplets.spans_H[found_M] - queries.spans_H[asked_M]
        likely = (np.abs(time_M) < LARGEST_CHANGE) & (np.abs(time_M + frequency_M) < PITCH_TOLERANCE)
        shared_M = utterances_M % COUNTERS
        likely &= (np.bincount(shared_M[likely], minlength=COUNTERS) >= MIN_VOTES)[shared_M]
        time_M, frequency_M = time_M[likely], frequency_M[likely]
        offset_M = self.triplets.times_H[found_M[likely]] - queries.times_H[asked_M[likely]] * 2**time_M
        return _voted(utterances_M[likely], time_M, frequency_M, offset_M)

    def _matches(self, cells_H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of places in `cells_H` and in the index that are in one cell."""
        begins_H = self.begins[cells_H]
        nums_H = self.begins[cells_H + 1] - begins_H
        within_M = np.arange(nums_H.sum()) - np.repeat(np.cumsum(nums_H) - nums_H - begins_H, nums_H)
        return np.repeat(np.arange(len(cells_H)), nums_H), within_M


def _voted(
    utterances_M: np.ndarray, time_M: np.ndarray, frequency_M: np.ndarray, offset_M: np.ndarray
) -> list[Alignment]:
    """Of the utterances with most votes the box of scales and offset that has them; boxes overlap by half."""
    best: dict[int, tuple[int, np.ndarray]] = {}
    for shift in (0.0, 0.5):
        keys_M = utterances_M.astype(np.int64)
        for values_M, side, num in (
            (time_M, SCALE_CELL, 32),
            (frequency_M, SCALE_CELL, 32),
            (offset_M, OFFSET_CELL_S, MOST_OFFSETS),
        ):
            keys_M = keys_M * num + (np.floor(values_M / side + shift).astype(np.int64) + num // 2) % num
        keys, votes = np.unique(keys_M, return_counts=True)
        several = np.flatnonzero(votes >= MIN_VOTES)
        for number in several[np.argsort(-votes[several], kind="stable")[: 2 * CANDIDATES]].tolist():
            other = int(keys[number] // (32 * 32 * MOST_OFFSETS))
            if votes[number] > best.get(other, (0, keys))[0]:
                best[other] = int(votes[number]), np.flatnonzero(keys_M == keys[number])
    chosen = sorted(best.items(), key=lambda item: -item[1][0])[:CANDIDATES]
    return [
        Alignment(other, num, *(float(values_M[inside].mean()) for values_M in (time_M, frequency_M, offset_M)))
        for other, (num, inside) in chosen
    ]
