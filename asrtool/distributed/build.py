"""A strategy by its name."""

from __future__ import annotations

import importlib

from asrtool.config import STRATEGIES
from asrtool.distributed.strategy import Strategy, StrategyContext
from asrtool.errors import AsrtoolError


def build_strategy(context: StrategyContext) -> Strategy:
    """The strategy `context.name`; AsrtoolError when these learners cannot train by it."""
    if context.name == "single" and context.world.size > 1:
        raise AsrtoolError(
            f"strategy single with {context.world.size} learners",
            "choose another --strategy, for example adpsgd-random",
        )
    module, _, function = STRATEGIES[context.name].rpartition(".")
    strategy: Strategy = getattr(importlib.import_module(module), function)(context)
    return strategy
