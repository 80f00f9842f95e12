"""Index of the triplets of many utterances, and searches for aligned matches.

Letters in names: H triplets, M matches, B boxes.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.data.duplicates.fingerprint import LARGEST_CHANGE, PITCH_STEPS, Triplets

SCALE_CELL, OFFSET_CELL_S = 0.05, 0.25  # octaves and seconds by which votes may differ
SCALES, OFFSETS = 2**4, 2**15  # more than there are cells of a scale, and of an offset: hours
MIN_VOTES, CANDIDATES = 8, 4
MOST_FOUND = 2**12  # triplets that a query may find: what more have, such as a tone, says nothing
UTTERANCES = 2**32  # more than there are
COUNTERS = 2**21  # that pairs of utterances share, to leave out at once those that cannot have MIN_VOTES
COLUMNS = {"keys_H": np.int64, "times_H": np.float32, "owners_H": np.int32}  # of Triplets; a file each
RECORD = np.dtype(list(COLUMNS.items()))  # of a triplet, before they are sorted
SORTED = 2**22  # triplets in memory at once
EVERY = 2**6  # of so many triplets the key of one says where to part them


@dataclass(frozen=True, slots=True)
class Alignment:
    """Map between two recordings: time t of one is `offset_s` + t * 2**`time_scale`.

    The other one's pitch rises as its duration falls.
    """

    other: int  # number of the other utterance
    votes: int  # triplets that say so
    time_scale: float  # octaves
    offset_s: float


@dataclass(frozen=True)
class FingerprintIndex:
    """Triplets in the order of their keys."""

    triplets: Triplets

    @classmethod
    def load(cls, folder: Path) -> FingerprintIndex:
        """Map the index that `write_index` wrote into memory, which processes share."""
        return cls(Triplets(*(_mapped(folder / name, kind) for name, kind in COLUMNS.items())))

    def alignments(self, queries: Triplets, first: int) -> list[tuple[int, Alignment]]:
        """Return utterance numbers with alignments to earlier candidate utterances.

        The CANDIDATES with most agreeing triplets are returned, at least MIN_VOTES. `queries` are of consecutive
        utterances from number `first` on.
        """
        asked_M, found_M = self.matches(queries.keys_H)
        askers_M, others_M = queries.owners_H[asked_M].astype(np.int64), self.triplets.owners_H[found_M]
        earlier = others_M < askers_M + first
        likely = np.flatnonzero(earlier & _frequent(askers_M * 2654435761 + others_M, earlier))
        asked_M, found_M = asked_M[likely], found_M[likely]
        pitch_M = (self.triplets.keys_H[found_M] - queries.keys_H[asked_M]) / PITCH_STEPS
        pairs_M = askers_M[likely] * UTTERANCES + others_M[likely]
        return [
            (asker + first, alignment)
            for asker, alignment in _voted(pairs_M, -pitch_M, queries.times_H[asked_M], self.triplets.times_H[found_M])
        ]

    def matches(self, keys_H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of positions in `keys_H` and the index in one cell.

        Their pitches are LARGEST_CHANGE apart at most.
        """
        index_H, reach = self.triplets.keys_H, int(LARGEST_CHANGE * PITCH_STEPS)
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


def write_index(parts: Iterable[Triplets], folder: Path) -> None:
    """Write the triplets of all parts to `folder`, sorted by key.

    About SORTED of them are in memory at a time.
    """
    unsorted = folder / "unsorted"
    with open(unsorted, "wb") as file:
        for triplets in parts:
            records_H = np.empty(len(triplets), RECORD)
            for name in COLUMNS:
                records_H[name] = getattr(triplets, name)
            file.write(records_H.tobytes())
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "wb")) for name in COLUMNS}
        for records_H in _in_order(unsorted):
            for name, file in files.items():
                file.write(records_H[name].tobytes())
    unsorted.unlink()


def _in_order(path: Path) -> Iterator[np.ndarray]:
    """All records of a file, in parts of about SORTED, by their keys."""
    sample = np.sort(np.concatenate([[0], *(records_H["keys_H"][::EVERY].copy() for records_H in _read(path))]))
    num_parts = 1 + path.stat().st_size // (RECORD.itemsize * SORTED)
    borders = sample[np.arange(1, num_parts) * len(sample) // num_parts].tolist()
    for low, high in itertools.pairwise([-(2**63), *borders, 2**63 - 1]):
        found = [some_H[(some_H["keys_H"] >= low) & (some_H["keys_H"] < high)] for some_H in _read(path)]
        records_H = np.concatenate([np.empty(0, RECORD), *found])
        found.clear()
        yield records_H[np.argsort(records_H["keys_H"], kind="stable")]


def _read(path: Path) -> Iterator[np.ndarray]:
    with open(path, "rb") as file:
        while len(records_H := np.fromfile(file, RECORD, SORTED // 4)):
            yield records_H


def _mapped(path: Path, kind: type) -> np.ndarray:
    """The values of a file; as a plain array, which is read faster than a memmap."""
    return np.memmap(path, kind, "r").view(np.ndarray) if path.stat().st_size else np.empty(0, kind)


def _frequent(pairs_M: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """False for pairs that are not MIN_VOTES times among those `counted`, but for few."""
    shared_M = pairs_M % COUNTERS
    return (np.bincount(shared_M[counted], minlength=COUNTERS) >= MIN_VOTES)[shared_M]


def _voted(
    pairs_M: np.ndarray, scales_M: np.ndarray, asked_s_M: np.ndarray, found_s_M: np.ndarray
) -> Iterator[tuple[int, Alignment]]:
    """Yield queries with the box of scale and offset that has most votes."""
    boxes_5B = _boxes(pairs_M, scales_M, asked_s_M, found_s_M)
    boxes_5B = boxes_5B[:, np.lexsort((-boxes_5B[1], boxes_5B[0]))]
    boxes_5B = boxes_5B[:, np.diff(boxes_5B[0], prepend=-1) != 0]  # the best of each pair
    askers_B = boxes_5B[0] // UTTERANCES
    order = np.lexsort((-boxes_5B[1], askers_B))
    rank = np.arange(len(order)) - np.searchsorted(askers_B, askers_B)
    for pair, votes, scale, asked_s, found_s in boxes_5B[:, order[rank < CANDIDATES]].T.tolist():
        asker, other = divmod(int(pair), UTTERANCES)
        yield asker, Alignment(other, int(votes), scale, found_s - asked_s * 2**scale)


def _boxes(pairs_M: np.ndarray, scales_M: np.ndarray, asked_s_M: np.ndarray, found_s_M: np.ndarray) -> np.ndarray:
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
