"""Loss scaling keeps the gradients of fp16 within its range (Micikevicius et al., arXiv 1710.03740, section 3.2)."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

FIRST, LEAST, MOST = 2.0**16, 1.0, 2.0**24
GROWTH_STEPS = 2000  # without an overflow, after which the scale doubles


class LossScale:
    """A loss is multiplied by `value`, a power of two, and its gradients are divided by it.

    A step whose gradients are not finite is skipped, and halves the scale; after `GROWTH_STEPS` others it doubles.
    Learners that average their gradients find the same ones not finite, so their scales stay the same.
    """

    def __init__(self) -> None:
        self.value = FIRST
        self.num_good = 0  # steps since the scale was changed
        self.num_skipped = 0  # steps of the whole training
        self.has_skipped = False  # whether that was the last one

    def apply(self, loss: Tensor) -> Tensor:
        """What gradients are to be computed of."""
        return loss * self.value

    def note(self, norm: float) -> None:
        """A step had gradients of this norm. At the smallest scale it is no overflow that makes one not finite."""
        self.has_skipped = not math.isfinite(norm) and self.value > LEAST
        if self.has_skipped:
            self.value, self.num_good = max(self.value / 2, LEAST), 0
            self.num_skipped += 1
            return
        self.num_good += 1
        if self.num_good == GROWTH_STEPS:
            self.value, self.num_good = min(2 * self.value, MOST), 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"value": self.value, "num_good": self.num_good, "num_skipped": self.num_skipped}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.value, self.num_good, self.num_skipped = state["value"], state["num_good"], state["num_skipped"]
