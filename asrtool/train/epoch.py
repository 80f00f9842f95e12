"""The batches of an epoch, with what is counted along them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asrtool.corpus.batches import Batch
from asrtool.train.examples import Examples


@dataclass
class Epoch:
    """Batches 0 to B - 1 of an epoch; the counts are those of all batches before position 0, 1, ... B."""

    batches: list[Batch]
    samples: np.ndarray  # (B + 1,) utterances
    normalisers: np.ndarray  # (B + 1,) of the loss

    @staticmethod
    def plan(examples: Examples, max_frames: int, seed: int, number: int) -> Epoch:
        """A pure function of its arguments, so all learners find the same."""
        batches = examples.plan_epoch(max_frames, seed, number)
        normalisers = [sum(examples.normalisers[i] for i in batch.indices) for batch in batches]
        return Epoch(batches, _before([len(batch.indices) for batch in batches]), _before(normalisers))

    def normaliser(self, positions: range) -> int:
        """Of the loss of the batches at `positions`."""
        return int(self.normalisers[positions.stop] - self.normalisers[positions.start])


def _before(counts: list[int]) -> np.ndarray:
    return np.cumsum([0, *counts])
