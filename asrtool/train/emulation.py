"""Slow learners and computation that only takes time, to study communication on one machine. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Emulation:
    """What is not as it would be by itself."""

    slow: Mapping[int, float] = field(default_factory=dict)  # learner -> how many times longer it computes
    compute_ms: float | None = None  # of a step that computes nothing

    def as_inputs(self) -> dict[str, float | None]:
        """What has an effect on the weights."""
        return {"compute_ms": self.compute_ms}
