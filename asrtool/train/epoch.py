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
    tokens: np.ndarray  # (B + 1,)

    @staticmethod
    def plan(examples: Examples, max_frames: int, seed: int, number: int) -> Epoch:
        """A pure function of its arguments, so all learners find the same."""
        batches = examples.plan_epoch(max_frames, seed, number)
        tokens = [sum(len(examples.tokens[i]) for i in batch.indices) for batch in batches]
        return Epoch(batches, _before([len(batch.indices) for batch in batches]), _before(tokens))

    def num_tokens(self, positions: range) -> int:
        """Tokens of the batches at `positions`."""
        return int(self.tokens[positions.stop] - self.tokens[positions.start])


def _before(counts: list[int]) -> np.ndarray:
    return np.cumsum([0, *counts])
