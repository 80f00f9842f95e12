"""Index of triplets, searches for aligned utterances, and their comparison.

Letters in names: H triplets, M matches, B boxes of votes or bands, P peaks, S samples, T frames, F bins.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from asrtool.data.duplicates.fingerprint import BAND, HOP, LARGEST_CHANGE, PITCH_STEPS, RATE_HZ, WINDOW, Triplets

SCALE_CELL, OFFSET_CELL_S = 0.05, 0.25  # octaves and seconds by which votes may differ
SCALES, OFFSETS = 2**4, 2**15  # more than there are cells of a scale, and of an offset: hours
MIN_VOTES, CANDIDATES = 8, 4
MOST_FOUND = 2**12  # triplets that a query may find: what more have, such as a tone, says nothing
UTTERANCES = 2**32  # more than there are
COUNTERS = 2**21  # that pairs of utterances share, to leave out at once those that cannot have MIN_VOTES
COLUMNS = tuple(field.name for field in fields(Triplets))  # a file each


@dataclass(frozen=True, slots=True)
class Alignment:
    """Map between two recordings: time t of one is `offset_s` + t * 2**`time_scale`.

    The other one's pitch rises as its duration falls.
    """

    other: int  # number of the other utterance
    votes: int  # triplets that say so
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
    pairs_M = askers_M[likely] * UTTERANCES + others_M[likely]
    boxes_5B = vote(pairs_M, -pitch_M, queries.times_H[asked_M], index.times_H[found_M])
    return [(asker + first, alignment) for asker, alignment in _most_voted(boxes_5B)]


def matches(index: Triplets, keys_H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of positions in `keys_H` and the index in one cell.

    Their pitches are LARGEST_CHANGE apart at most.
    """
    index_H, reach = index.keys_H, int(LARGEST_CHANGE * PITCH_STEPS)
    order = np.argsort(keys_H)  # what lies near in memory is then looked at in turn: four times as fast
    asked_H = keys_H[order]
    begins_H = np.searchsorted(index_H, asked_H - reach)
    some = np.flatnonzero(begins_H < len(index_H))
    some = some[index_H[begins_H[some]] <= asked_H[some] + reach]
    begins_H = begins_H[some]
    nums_H = np.searchsorted(index_H, asked_H[some] + reach, side="right") - begins_H
    nums_H[nums_H > MOST_FOUND] = 0
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
    askers_B = boxes_5B[0] // UTTERANCES
    order = np.lexsort((-boxes_5B[1], askers_B))
    rank = np.arange(len(order)) - np.searchsorted(askers_B, askers_B)
    for pair, votes, scale, asked_s, found_s in boxes_5B[:, order[rank < CANDIDATES]].T.tolist():
        asker, other = divmod(int(pair), UTTERANCES)
        yield asker, Alignment(other, int(votes), scale, found_s - asked_s * 2**scale)


BANDS = 40
EVERY = 2  # frames that are compared
LOWEST_HZ, HIGHEST_HZ = 260.0, 2700.0  # with room for a change of a third of an octave within the fingerprint's band
RANGE = 9.0  # nats of power below the highest value, under which there is no more than noise of a codec
LEAST_OVERLAP_S = 0.5
PEAK_S, PEAK_OCTAVES = 0.024, 0.05  # that a peak may lie beside the other one


def likeness(one_TF: np.ndarray, other_TF: np.ndarray, alignment: Alignment) -> float:
    """Return the correlation of spectrograms, each band about its mean.

    It is 0 for less than half a second, or if less than half of the shorter utterance is covered. `alignment` maps
    `one_TF` to `other_TF`.
    """
    places_T = np.arange(0, len(one_TF), EVERY) * 2**alignment.time_scale + alignment.offset_s * RATE_HZ / HOP
    both = (places_T >= 0) & (places_T <= len(other_TF) - 1)
    overlap, shorter = both.sum() * EVERY, min(len(one_TF), len(other_TF) / 2**alignment.time_scale)
    if overlap * HOP < LEAST_OVERLAP_S * RATE_HZ or overlap < shorter / 2:
        return 0.0
    octaves_B = np.linspace(np.log2(LOWEST_HZ), np.log2(HIGHEST_HZ), BANDS)
    one_TB = _interpolate(one_TF, EVERY * np.flatnonzero(both), octaves_B)
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
    values_TB = np.maximum(values_TB, values_TB.max() - RANGE)
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
