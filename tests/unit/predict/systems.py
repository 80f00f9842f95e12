"""Systems to test with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from asrtool.predict.theory.system import System
from asrtool.settings.schema import Choice

ALL: list[tuple[str, dict[str, Any]]] = [
    ("allreduce", {}),
    ("ps-sync", {}),
    ("adpsgd-fixed", {}),
    ("adpsgd-random", {}),
    ("adpsgd", {"ring": f"{__name__}:turning_ring"}),
    ("adpsgd-pairs", {}),
    ("adpsgd-d1", {}),
    ("h-adpsgd", {"node_size": 2}),
    ("h-adpsgd", {"node_size": 2, "outer": "adpsgd-fixed"}),
    ("h-adpsgd", {"node_size": 2, "outer": "adpsgd-d1"}),
    ("bmuf", {"block_momentum": 0.0, "block_steps": 4}),
    ("ps-async", {}),
    ("hogwild", {}),
]


def system_of(name: str, num: int, slow: Mapping[int, float] | None = None, seed: int = 1, **settings: Any) -> System:
    return System(Choice.of("strategy", name, **settings), num, slow or {}, seed)


def turning_ring(num_learners: int, step: int, seed: int) -> Sequence[int]:
    """Two orders in turn."""
    return list(range(num_learners)) if step % 2 else [*range(0, num_learners, 2), *range(1, num_learners, 2)]
