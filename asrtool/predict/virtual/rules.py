"""The rule of each strategy that comes with the toolkit, for virtual learners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asrtool.distributed.strategies.gossip import Gossip as RealGossip
from asrtool.distributed.strategies.gossip import Pairs
from asrtool.distributed.world import MESSAGES
from asrtool.errors import AsrtoolError
from asrtool.predict.virtual.gossip import Gossip
from asrtool.predict.virtual.replica import SharedModel
from asrtool.predict.virtual.rule import Rule
from asrtool.predict.virtual.shared_weights import Hogwild, Served
from asrtool.predict.virtual.synchronous import Blocks, DelayByOne, Together
from asrtool.settings.schema import Choice

Make = Callable[[SharedModel, int, Any, int], Rule]  # of the settings of the strategy, and learners of a node


def _gossip(weight: float) -> Make:
    return lambda shared, num, settings, node_size: Gossip(shared, num, weight, MESSAGES[settings.message_type])


def _hierarchical(shared: SharedModel, num_learners: int, settings: Any, node_size: int) -> Rule:
    if settings.outer == "adpsgd-d1":
        return DelayByOne(shared, num_learners, node_size)
    return Gossip(shared, num_learners, RealGossip.weight, MESSAGES[settings.message_type], node_size)


def _averaged(shared: SharedModel, num_learners: int, settings: Any, node_size: int) -> Rule:
    return Together(shared, num_learners, num_learners, share_statistics=False)


RULES: dict[str, Make] = {
    "single": _averaged,
    "allreduce": _averaged,
    "ps-sync": _averaged,
    "adpsgd": _gossip(RealGossip.weight),
    "adpsgd-fixed": _gossip(RealGossip.weight),
    "adpsgd-random": _gossip(RealGossip.weight),
    "adpsgd-pairs": _gossip(Pairs.weight),
    "adpsgd-d1": lambda shared, num, settings, node_size: DelayByOne(shared, num, 1),
    "h-adpsgd": _hierarchical,
    "bmuf": lambda shared, num, settings, node_size: Blocks(shared, num, settings),
    "ps-async": lambda shared, num, settings, node_size: Served(shared, num, settings.num_servers),
    "hogwild": lambda shared, num, settings, node_size: Hogwild(shared, num),
    "none": lambda shared, num, settings, node_size: Gossip(shared, num, RealGossip.weight, MESSAGES["fp32"]),
}
IN_BF16 = ("adpsgd", "adpsgd-fixed", "adpsgd-random", "adpsgd-pairs")  # whose messages virtual learners round


def rule_of(strategy: Choice, shared: SharedModel, num_learners: int, node_size: int) -> Rule:
    """That of `strategy`. AsrtoolError where virtual learners have none, or not so."""
    name, settings = strategy.name, strategy.settings
    if name not in RULES:
        known = ", ".join(RULES)
        what = f"distributed.strategy = {name}: virtual learners know no rule for it, expected one of {known}"
        raise AsrtoolError(what, "train with it by asrtool train, or choose another --strategy")
    if getattr(settings, "message_type", "fp32") != "fp32" and name not in IN_BF16:
        what = f"distributed.{name}.message_type is {settings.message_type}, which virtual learners round with"
        raise AsrtoolError(f"{what} {', '.join(IN_BF16)} alone", f"--set distributed.{name}.message_type=fp32")
    if name == "single" and num_learners > 1:
        raise AsrtoolError(
            f"strategy single with {num_learners} learners", "choose another --strategy, for example adpsgd-random"
        )
    if num_learners % node_size:
        what = f"{num_learners} learners in nodes of {node_size}"
        raise AsrtoolError(what, "choose a distributed.h-adpsgd.node_size that divides the number of learners")
    return RULES[name](shared, num_learners, settings, node_size)
