"""A strategy by its name."""

from __future__ import annotations

import importlib

from asrtool.config import STRATEGIES
from asrtool.dist.strategy import Parts, Strategy
from asrtool.errors import AsrtoolError


def build_strategy(parts: Parts) -> Strategy:
    """The strategy `parts.name`; AsrtoolError when these learners cannot train by it."""
    if parts.name == "single" and parts.world.size > 1:
        raise AsrtoolError(
            f"strategy single with {parts.world.size} learners", "choose another --strategy, for example adpsgd-random"
        )
    module, _, function = STRATEGIES[parts.name].rpartition(".")
    strategy: Strategy = getattr(importlib.import_module(module), function)(parts)
    return strategy
