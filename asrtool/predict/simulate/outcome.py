"""Outcome of a simulated training: sums over the steps of each learner."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
PARTS = ("compute_s", "comm_s", "wait_s", "data_s", "between_s")
COUNTS = ("steps", "bytes", "staleness", "exchanges", "skipped")
SUMS = (*PARTS, "blamed_s", *COUNTS)


@dataclass
class Outcome:
    """Arrays have an entry for each learner, also for those that joined.

    The parts of a learner's time add up to `seconds`: its steps, and `between_s`, when it starts, saves, evaluates,
    stands still after a loss, and waits at the end.
    """

    strategy: str
    num_learners: int  # that began
    num_batches: int  # of the whole training, each once
    batch: float  # samples of each
    seconds: float = 0.0  # from the start of the command to its end
    num_losses: int = 0  # of learners
    num_repeated: int = 0  # batches trained once more after a loss
    num_joined: int = 0
    lost_s: float = 0.0  # of training, that was done once more
    compute_s: Floats = field(init=False)
    comm_s: Floats = field(init=False)
    wait_s: Floats = field(init=False)  # for other learners, and for messages
    data_s: Floats = field(init=False)
    between_s: Floats = field(init=False)
    blamed_s: Floats = field(init=False)  # that others waited for this learner, summed
    steps: Counts = field(init=False)
    bytes: Counts = field(init=False)
    staleness: Counts = field(init=False)  # summed
    exchanges: Counts = field(init=False)
    skipped: Counts = field(init=False)

    def __post_init__(self) -> None:
        for name in SUMS:
            setattr(self, name, np.zeros(self.num_learners, dtype=np.int64 if name in COUNTS else np.float64))

    @property
    def samples_per_s(self) -> float:
        """Samples a second of all learners, over the whole training."""
        return self.num_batches * self.batch / self.seconds

    @property
    def mean_staleness(self) -> float:
        """Mean staleness of a step."""
        return float(self.staleness.sum() / max(1, self.steps.sum()))

    def fraction(self, part: str) -> float:
        """Return the fraction that a part has of the time of all learners."""
        return float(getattr(self, part).sum()) / (self.seconds * len(self.steps))

    def blame(self) -> tuple[int, float]:
        """Find the learner that others waited for most.

        Returns the learner and the fraction of the time of all learners that was spent on it.
        """
        learner = int(self.blamed_s.argmax())
        return learner, float(self.blamed_s[learner]) / (self.seconds * len(self.steps))
