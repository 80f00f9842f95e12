"""Outcome of a simulated training: sums over the steps of each learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
PARTS = ("compute_s", "comm_s", "wait_s", "data_s", "between_s")
COUNTS = ("steps", "bytes", "staleness", "exchanges", "skipped")


@dataclass
class Outcome:
    """Arrays have an entry for each learner, also for those that joined.

    The parts of a learner's time add up to `seconds`: its steps, and `between_s`, when it starts, saves, evaluates,
    stands still after a loss, and waits at the end.
    """

    strategy: str
    num_learners: int  # that began
    seconds: float = 0.0  # from the start of the command to its end
    num_batches: int = 0  # of the whole training, each once
    batch: float = 0.0  # samples of each
    num_losses: int = 0  # of learners
    num_repeated: int = 0  # batches trained once more after a loss
    num_joined: int = 0
    lost_s: float = 0.0  # of training, that was done once more
    compute_s: Floats = field(default_factory=lambda: np.zeros(0))
    comm_s: Floats = field(default_factory=lambda: np.zeros(0))
    wait_s: Floats = field(default_factory=lambda: np.zeros(0))  # for other learners, and for messages
    data_s: Floats = field(default_factory=lambda: np.zeros(0))
    between_s: Floats = field(default_factory=lambda: np.zeros(0))
    blamed_s: Floats = field(default_factory=lambda: np.zeros(0))  # that others waited for this learner, summed
    steps: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    bytes: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    staleness: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # summed
    exchanges: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    skipped: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def empty(cls, strategy: str, num_learners: int) -> Outcome:
        """Make the outcome of learners that have not started."""
        outcome = cls(strategy, num_learners)
        for name in (*PARTS, *COUNTS, "blamed_s"):
            setattr(outcome, name, np.zeros(num_learners, dtype=getattr(outcome, name).dtype))
        return outcome

    def add(self, sums: Mapping[str, Any]) -> None:
        """Set the arrays to these; learners that joined are at their end."""
        for name in (*PARTS, *COUNTS, "blamed_s"):
            setattr(self, name, np.array(sums[name], dtype=getattr(self, name).dtype))

    @property
    def samples_per_s(self) -> float:
        """Samples a second of all learners, over the whole training."""
        return self.num_batches * self.batch / self.seconds

    def fraction(self, part: str) -> float:
        """Return the fraction that a part has of the time of all learners."""
        return float(getattr(self, part).sum()) / (self.seconds * len(self.steps))

    def blame(self) -> tuple[int, float]:
        """Find the learner that others waited for most.

        Returns the learner and the fraction of the time of all learners that was spent on it.
        """
        learner = int(self.blamed_s.argmax())
        return learner, float(self.blamed_s[learner]) / (self.seconds * len(self.steps))
