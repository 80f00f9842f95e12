"""Targets of many utterances as two arrays.

Letters in names: N sequences, U targets of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Targets:
    """Sequences of targets, concatenated."""

    values: np.ndarray  # targets of all utterances, unsigned integers
    ends: np.ndarray  # (N + 1,) uint64: 0, then the end of each

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Targets:
        """Build from lists of targets."""
        ends = np.cumsum([0, *map(len, sequences)], dtype=np.uint64)
        return cls(np.array([value for sequence in sequences for value in sequence], np.uint32), ends)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, number: int) -> np.ndarray:
        """Return the targets of an utterance (U,), int64."""
        return self.values[self.ends[number] : self.ends[number + 1]].astype(np.int64)

    @property
    def lens(self) -> np.ndarray:
        """Number of targets of each, (N,) int64."""
        return np.diff(self.ends.astype(np.int64))

    def repeats(self) -> np.ndarray:
        """Return the number of targets equal to their predecessor, (N,) int64."""
        positions = np.flatnonzero(self.values[1:] == self.values[:-1]) + 1
        numbers = np.searchsorted(self.ends, positions, side="right")
        is_inside = self.ends[numbers - 1] < positions  # others begin a sequence
        return np.bincount(numbers[is_inside] - 1, minlength=len(self))
