"""Simulate a training by a strategy: dispatch between strategies in lock-step and those that wait for nobody."""

from __future__ import annotations

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.asynchronous import simulate_asynchronous
from asrtool.predict.simulate.cluster import make_cluster
from asrtool.predict.simulate.events import Emit
from asrtool.predict.simulate.outcome import Outcome
from asrtool.predict.simulate.scenario import Scenario
from asrtool.predict.simulate.synchronous import simulate_lock_step
from asrtool.settings.schema import Choice

LOCK_STEP = ("single", "allreduce", "adpsgd-d1", "bmuf", "ps-sync")


def is_lock_step(strategy: Choice) -> bool:
    """Whether all learners make each step together."""
    return strategy.name in LOCK_STEP or getattr(strategy.settings, "outer", "") == "adpsgd-d1"


def simulate(scenario: Scenario, strategy: Choice, num_learners: int, emit: Emit | None = None) -> Outcome:
    """The whole training of `scenario` by so many learners; `emit` gets what happens to weights, in order.

    Raises AsrtoolError where they do not fit one another.
    """
    if ":" in strategy.name:
        what = f"distributed.strategy has {strategy.name}: there is no model of how strategies of your own communicate"
        raise AsrtoolError(what, "leave it out; a ring of your own can be simulated: distributed.adpsgd.ring")
    num_servers = getattr(strategy.settings, "num_servers", 0)
    if num_servers > num_learners:
        what = f"distributed.{strategy.name}.num_servers is {num_servers}, and there are {num_learners} learners"
        raise AsrtoolError(what, "choose at most one server a learner")
    # Those of delay-by-one and of a block drift apart: none waits for the last of the others. Servers of ps-sync answer
    # one after the other.
    cluster = make_cluster(scenario, num_learners, together=strategy.name == "allreduce")
    run = simulate_lock_step if is_lock_step(strategy) else simulate_asynchronous
    return run(cluster, strategy.name, strategy.settings, emit)
