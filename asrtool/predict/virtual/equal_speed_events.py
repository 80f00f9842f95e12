"""The events of learners that are equally fast, where each exchange takes place at once: rounds of a second each.

Between two steps all learners send a snapshot, all answer, and all receive: on a ring this mixes by its matrix T,
W_{k+1} = W_k T_k - alpha G. Pairs average one after the other, by the rank of the active one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from asrtool.distributed.strategies.topology import Partner, on_ring, passive_partner
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.predict.simulate.events import Answer, Begin, End, Event, Push, Receive, Round, Send, Take, Update
from asrtool.settings import registry
from asrtool.settings.schema import Choice
from asrtool.train.batches.plan import Plan

ROUND_S = 1.0


def in_lock_step(strategy: Choice, rule: AssignmentRule, plan: Plan, num_learners: int, seed: int) -> Iterator[Event]:
    """All of a training."""
    for step in itertools.count():
        begun = list(_begin(rule, plan, num_learners, step))
        if not begun:
            return
        end_s = (step + 1) * ROUND_S
        yield from begun
        yield from _end(strategy, rule, [begin.learner for begin in begun], end_s)
        yield from (End(end_s, begin.learner, step * ROUND_S, ROUND_S) for begin in begun)
        if partner := partner_of(strategy):
            yield from _exchange(partner, rule.group_size, begun, num_learners, seed, step + 1)


def _begin(rule: AssignmentRule, plan: Plan, num_learners: int, step: int) -> Iterator[Begin]:
    """Of the learners that still have a round."""
    size = rule.round_size(num_learners)
    for learner in range(num_learners):
        number = step * (num_learners // size) + learner // size
        found = plan.round(number)
        if found:
            batches = plan.batches(found.epoch, found.slots)
            place = learner % size
            epoch, position = batches[place] if place < len(batches) else (found.epoch, None)
            yield Begin(step * ROUND_S, learner, number, epoch, position)


def _end(strategy: Choice, rule: AssignmentRule, learners: Sequence[int], at_s: float) -> Iterator[Event]:
    if rule.lockstep:
        yield Round(at_s)
    elif strategy.name == "ps-async":
        for learner in learners:
            yield from (Push(at_s, learner, server) for server in range(strategy.settings.num_servers))
    else:
        yield from (Update(at_s, learner) for learner in learners)
        if strategy.name != "hogwild":
            yield from (Take(at_s, learner) for learner in learners)


def partner_of(strategy: Choice) -> Partner | None:
    """With whom learners exchange, or nodes; None where they do not."""
    name, settings = strategy.name, strategy.settings
    if name == "adpsgd-pairs":
        return passive_partner
    ring = {
        "adpsgd": getattr(settings, "ring", ""),
        "adpsgd-fixed": "fixed",
        "adpsgd-random": "random",
        "h-adpsgd": getattr(settings, "outer", "").removeprefix("adpsgd-").replace("d1", ""),
    }.get(name)
    return on_ring(registry.load("ring", ring)) if ring else None


def _exchange(
    partner: Partner, node_size: int, begun: Sequence[Begin], num_learners: int, seed: int, step: int
) -> Iterator[Event]:
    at_s, num_nodes = step * ROUND_S, num_learners // node_size
    pairs = []
    for learner in (begin.learner for begin in begun):
        node = partner(num_nodes, step, seed, learner // node_size)
        if node is not None and node != learner // node_size:
            pairs.append((learner, node * node_size + learner % node_size))
    for at_once in [[pair] for pair in pairs] if partner is passive_partner else [pairs]:
        yield from (Send(at_s, one, other) for one, other in at_once)
        yield from (Answer(at_s, other, one) for one, other in at_once)
        yield from (Receive(at_s, one, other) for one, other in at_once)
