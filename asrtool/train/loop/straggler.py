"""Emulated stragglers and computation, to study communication on one machine.

Needs no torch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class InjectionOptions:
    """Options of the command that emulate stragglers; not settings."""

    slow: Mapping[int, float] = field(default_factory=dict)  # learner -> how many times longer it computes
    compute_ms: float | None = None  # milliseconds of a step, if computation is emulated

    def as_inputs(self) -> dict[str, float | None]:
        """Return the options that affect the weights."""
        return {"compute_ms": self.compute_ms}


class StragglerInjection:
    """Emulated straggler: the computation of a learner stretched by `factor`."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.before_s = 0.0  # seconds of the last step until backward began
        self.backward_s = 0.0  # seconds of backward in the last step, and of all that followed

    def stretch(self, forward_s: float) -> None:
        """Sleep before backward, where others wait, by the last backward's length."""
        if self.factor > 1:
            began = time.perf_counter()
            time.sleep((self.factor - 1) * (forward_s + self.backward_s))
            self.before_s = forward_s + time.perf_counter() - began

    def note(self, compute_s: float) -> None:
        """Note the stretched duration of a step."""
        self.backward_s = max(0.0, compute_s - self.before_s)
