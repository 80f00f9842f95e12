"""Fingerprints of speech that survive changes of speed, gain and codec; index.

Peaks of a spectrogram (Wang, "An industrial-strength audio search algorithm", 2003) are joined to triplets, whose
ratios of frequencies and of times do not depend on speed (Six and Leman, "Panako", 2014). An index of triplets finds
utterances that may be aligned, and spectrograms compare them.

Letters in names: S samples, T frames, F bins, P peaks, H triplets, M matches, B boxes of votes or bands.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from scipy import fft
from scipy.ndimage import maximum_filter

RATE_HZ = 8000  # sampling rate, or a multiple of it; only the telephone band is used
WINDOW = 512  # samples of RATE_HZ: 64 ms, long enough to separate the harmonics of a voice
HOP = 128
BAND = slice(13, 218)  # bins from 200 to 3,400 Hz
PEAK_FLOOR = 9.0  # nats of power that a peak may lie below the highest of the utterance
PEAK_RADIUS = 5  # frames and bins to both sides that a peak is higher than
PEAKS_PER_S = 30.0  # the highest

NEAREST_S, FARTHEST_S = 0.08, 1.2  # distance of the other two peaks of a triplet from its first one
FAN_OUT = 3  # peaks after the first one that are paired: the highest, which survive codecs
NUM_FOLLOWING = 64  # peaks after the first one that are candidates

# Cells of features that do not depend on speed: the logarithms of both ratios of frequencies, the ratio
# of times, the logarithm of the cycles of the first peak's frequency from it to the last one.
OCTAVE_CELLS, RATIO_CELLS, CYCLE_CELLS = 28, 16, 9
STRIDES = (2**12 * 2**8, 2**12, 2**7, 1)  # for 8, 8, 5 and 7 bits: values in the band, and one more cell
LOWEST = (-128, -128, -1, 0)  # value of the first cell of each
PITCH_STEPS, PITCH_BITS = 128, 10  # steps of an octave of the first peak's frequency, by which a cell is sorted
LOWEST_PITCH = 7.0  # octaves: 128 Hz
MAX_PITCH_CHANGE = 0.17  # octaves of frequency between matches: a factor of 1.125


@dataclass(frozen=True)
class Triplets:
    """Triplets of one or many utterances; arrays of one length."""

    keys_H: np.ndarray  # int64: the cell, then the pitch in the last PITCH_BITS
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
    is_peak_TF = inner_TF == maximum_filter(power_TF, 2 * PEAK_RADIUS + 1, mode="constant")[1:-1, 1:-1]
    is_peak_TF &= inner_TF > power_TF.max() * np.float32(np.exp(-PEAK_FLOOR))
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
    owners_P = np.repeat(np.arange(len(peaks), dtype=np.int32), [peaks_3P.shape[1] for peaks_3P in peaks])
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

    Each peak is joined with two of the FAN_OUT highest after it in its utterance.
    """
    num = len(seconds_P)
    line_P = seconds_P + owners_P * 2.0**20  # times of all utterances in a row, far apart
    behind_PK = np.searchsorted(line_P, line_P + NEAREST_S)[:, None] + np.arange(NUM_FOLLOWING)
    clipped_PK = np.minimum(behind_PK, max(0, num - 1))
    near_PK = (behind_PK < num) & (line_P[clipped_PK] - line_P[:, None] < FARTHEST_S)
    levels_PK = np.where(near_PK, levels_P[clipped_PK], -np.inf)
    chosen_PN = np.argpartition(-levels_PK, FAN_OUT - 1, axis=1)[:, :FAN_OUT]
    there_PN = np.take_along_axis(near_PK, chosen_PN, axis=1)
    chosen_PN = np.sort(np.where(there_PN, np.take_along_axis(behind_PK, chosen_PN, axis=1), num), axis=1)
    triplets_H3 = np.concatenate(
        [
            np.stack([np.arange(num), chosen_PN[:, a], chosen_PN[:, b]], axis=1)
            for a, b in itertools.combinations(range(FAN_OUT), 2)
        ]
    )
    return triplets_H3[triplets_H3[:, 2] < num]


def _keys(values_H4: np.ndarray, pitches_H: np.ndarray) -> np.ndarray:
    """Encode cells and octaves as one integer key for each triplet."""
    cells_H = ((values_H4 - np.array(LOWEST)) @ np.array(STRIDES)).astype(np.int64)
    return cells_H * 2**PITCH_BITS + ((pitches_H - LOWEST_PITCH) * PITCH_STEPS).astype(np.int64)


SCALE_CELL, OFFSET_CELL_S = 0.05, 0.25  # octaves and seconds by which votes may differ
SCALES, OFFSETS = 2**4, 2**15  # more than there are cells of a scale, and of an offset: hours
MIN_VOTES, CANDIDATES = 8, 4
MAX_MATCHES = 2**12  # matches of one query; more, as of a tone, are no evidence
MAX_UTTERANCES = 2**32  # more than there are
COUNTERS = 2**21  # shared by pairs of utterances, to drop pairs early that cannot reach MIN_VOTES
COLUMNS = tuple(field.name for field in fields(Triplets))  # a file each


@dataclass(frozen=True, slots=True)
class Alignment:
    """Map between two recordings: time t of one is `offset_s` + t * 2**`time_scale`.

    The other one's pitch rises as its duration falls.
    """

    other: int  # number of the other utterance
    votes: int  # triplets in favour
    time_scale: float  # octaves
    offset_s: float


def load_index(folder: Path) -> Triplets:
    """Map the index that `write_index` wrote into memory, which processes share."""
    # As plain arrays, which are read faster than a memmap.
    return Triplets(*(np.load(folder / f"{name}.npy", "r").view(np.ndarray) for name in COLUMNS))


def find_alignments(index: Triplets, queries: Triplets, first: int) -> list[tuple[int, Alignment]]:
    """Return utterance numbers with alignments to earlier candidate utterances.

    The CANDIDATES with most agreeing triplets are returned, at least MIN_VOTES. `index` is in the order of its keys.
    `queries` are of some consecutive utterances from number `first` on, and count from 0.
    """
    asked_M, found_M = matches(index, queries.keys_H)
    askers_M, others_M = queries.owners_H[asked_M].astype(np.int64), index.owners_H[found_M]
    earlier = others_M < askers_M + first
    shared_M = (askers_M * 2654435761 + others_M) % COUNTERS
    frequent = np.bincount(shared_M[earlier], minlength=COUNTERS) >= MIN_VOTES
    likely = np.flatnonzero(earlier & frequent[shared_M])
    asked_M, found_M = asked_M[likely], found_M[likely]
    pitch_M = (index.keys_H[found_M] - queries.keys_H[asked_M]) / PITCH_STEPS
    pairs_M = askers_M[likely] * MAX_UTTERANCES + others_M[likely]
    boxes_5B = vote(pairs_M, -pitch_M, queries.times_H[asked_M], index.times_H[found_M])
    return [(asker + first, alignment) for asker, alignment in _most_voted(boxes_5B)]


def matches(index: Triplets, keys_H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of positions in `keys_H` and the index in one cell.

    Their pitches are MAX_PITCH_CHANGE apart at most.
    """
    index_H, reach = index.keys_H, int(MAX_PITCH_CHANGE * PITCH_STEPS)
    order = np.argsort(keys_H)  # sorted keys are near in memory: four times as fast
    asked_H = keys_H[order]
    begins_H = np.searchsorted(index_H, asked_H - reach)
    some = np.flatnonzero(begins_H < len(index_H))
    some = some[index_H[begins_H[some]] <= asked_H[some] + reach]
    begins_H = begins_H[some]
    nums_H = np.searchsorted(index_H, asked_H[some] + reach, side="right") - begins_H
    nums_H[nums_H > MAX_MATCHES] = 0
    found_M = np.arange(nums_H.sum()) - np.repeat(np.cumsum(nums_H) - nums_H - begins_H, nums_H)
    return np.repeat(order[some], nums_H), found_M


def write_index(parts: Sequence[Triplets], folder: Path) -> None:
    """Write the triplets of all parts to `folder`, sorted by key."""
    order = np.argsort(np.concatenate([triplets.keys_H for triplets in parts]), kind="stable")
    for name in COLUMNS:
        np.save(folder / f"{name}.npy", np.concatenate([getattr(triplets, name) for triplets in parts])[order])


def vote(pairs_M: np.ndarray, scales_M: np.ndarray, asked_s_M: np.ndarray, found_s_M: np.ndarray) -> np.ndarray:
    """Return boxes with MIN_VOTES: pair, votes, mean scale and times, (5, B).

    Boxes overlap by half, so a match across a border is inside another one.
    """
    offsets_M = found_s_M - asked_s_M * 2**scales_M
    found = []
    for shift, other_shift in itertools.product((0.0, 0.5), repeat=2):
        scale_cells_M = np.floor(scales_M / SCALE_CELL + shift).astype(np.int64) % SCALES
        offset_cells_M = np.floor(offsets_M / OFFSET_CELL_S + other_shift).astype(np.int64) % OFFSETS
        keys_M = (pairs_M * SCALES + scale_cells_M) * OFFSETS + offset_cells_M
        order = np.argsort(keys_M)
        begins_B = np.flatnonzero(np.diff(keys_M[order], prepend=-1))
        votes_B = np.diff(begins_B, append=len(order))
        sums = [np.add.reduceat(values_M[order], begins_B) for values_M in (scales_M, asked_s_M, found_s_M)]
        boxes_5B = np.stack([pairs_M[order[begins_B]], votes_B, *(sum_B / votes_B for sum_B in sums)])
        found.append(boxes_5B[:, votes_B >= MIN_VOTES])
    return np.concatenate(found, axis=1)


def _most_voted(boxes_5B: np.ndarray) -> Iterator[tuple[int, Alignment]]:
    """Yield the CANDIDATES of each utterance with most votes."""
    boxes_5B = boxes_5B[:, np.lexsort((-boxes_5B[1], boxes_5B[0]))]
    boxes_5B = boxes_5B[:, np.diff(boxes_5B[0], prepend=-1) != 0]  # the best of each pair
    askers_B = boxes_5B[0] // MAX_UTTERANCES
    order = np.lexsort((-boxes_5B[1], askers_B))
    rank = np.arange(len(order)) - np.searchsorted(askers_B, askers_B)
    for pair, votes, scale, asked_s, found_s in boxes_5B[:, order[rank < CANDIDATES]].T.tolist():
        asker, other = divmod(int(pair), MAX_UTTERANCES)
        yield asker, Alignment(other, int(votes), scale, found_s - asked_s * 2**scale)


BANDS = 40
FRAME_STRIDE = 2  # frames that are compared
LOWEST_HZ, HIGHEST_HZ = 260.0, 2700.0  # with room for a change of a third of an octave within the fingerprint's band
DYNAMIC_RANGE = 9.0  # nats of power below the highest value, under which there is no more than noise of a codec
MIN_OVERLAP_S = 0.5
PEAK_S, PEAK_OCTAVES = 0.024, 0.05  # tolerances of matching peaks


def similarity(one_TF: np.ndarray, other_TF: np.ndarray, alignment: Alignment) -> float:
    """Return the correlation of spectrograms, each band about its mean.

    It is 0 for less than half a second, or if less than half of the shorter utterance is covered. `alignment` maps
    `one_TF` to `other_TF`.
    """
    places_T = np.arange(0, len(one_TF), FRAME_STRIDE) * 2**alignment.time_scale + alignment.offset_s * RATE_HZ / HOP
    both = (places_T >= 0) & (places_T <= len(other_TF) - 1)
    overlap, shorter = both.sum() * FRAME_STRIDE, min(len(one_TF), len(other_TF) / 2**alignment.time_scale)
    if overlap * HOP < MIN_OVERLAP_S * RATE_HZ or overlap < shorter / 2:
        return 0.0
    octaves_B = np.linspace(np.log2(LOWEST_HZ), np.log2(HIGHEST_HZ), BANDS)
    one_TB = _interpolate(one_TF, FRAME_STRIDE * np.flatnonzero(both), octaves_B)
    other_TB = _interpolate(other_TF, places_T[both], octaves_B - alignment.time_scale)
    covariance = float((one_TB * other_TB).mean())
    return covariance / max(float(np.sqrt((one_TB**2).mean() * (other_TB**2).mean())), 1e-9)


def _interpolate(logs_TF: np.ndarray, places_T: np.ndarray, octaves_B: np.ndarray) -> np.ndarray:
    """Return a spectrogram at frames and frequencies, (T, B), minus band means."""
    bins_B = 2**octaves_B * WINDOW / RATE_HZ - BAND.start
    rows_T = np.minimum(places_T.astype(np.int64), len(logs_TF) - 2)
    part_T1 = (places_T - rows_T)[:, None]
    frames_TF = logs_TF[rows_T] * (1 - part_T1) + logs_TF[rows_T + 1] * part_T1
    columns_B = bins_B.astype(np.int64)
    part_B = bins_B - columns_B
    values_TB = frames_TF[:, columns_B] * (1 - part_B) + frames_TF[:, columns_B + 1] * part_B
    values_TB = np.maximum(values_TB, values_TB.max() - DYNAMIC_RANGE)
    return np.asarray(values_TB - values_TB.mean(axis=0))


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
