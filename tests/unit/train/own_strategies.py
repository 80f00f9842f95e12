"""Strategies of a person's own, whose settings say what learners can do by them, or claim it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from asrtool.distributed.strategies.gossip import adpsgd
from asrtool.distributed.strategies.replica import LocalReplica
from asrtool.distributed.strategies.strategy import Strategy, StrategyContext, SynchronousStrategy
from asrtool.distributed.work.work_queue import AssignmentRule


@dataclass(frozen=True)
class Enduring:
    survives: ClassVar[bool] = True
    joinable: ClassVar[bool] = True
    ring: ClassVar[str] = "random"

    message_type: str = "fp32"


@dataclass(frozen=True)
class Nodes:
    of_nodes: ClassVar[bool] = True

    node_size: int = 0


@dataclass(frozen=True)
class Steps:
    step_each: ClassVar[bool] = True


class Gossiping:
    """Gossip that survives losses and can be joined."""

    Settings = Enduring

    def __new__(cls, context: StrategyContext) -> Any:
        strategy = adpsgd(context)
        assert isinstance(strategy, LocalReplica)
        return strategy


def silent(context: StrategyContext) -> Strategy:
    """Has no settings, so says nothing of itself."""
    return SynchronousStrategy(context, AssignmentRule(), context.task)


class InNodes:
    Settings = Nodes


class StepEach:
    Settings = Steps


class Claiming:
    """Claims to survive, and waits for all others."""

    Settings = Enduring

    def __new__(cls, context: StrategyContext) -> Any:
        return silent(context)


def forgetful(context: StrategyContext) -> None:
    """Makes a strategy and does not return it."""
    silent(context)
