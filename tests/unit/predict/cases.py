"""Scenarios of tests: small, and with numbers that a person can reckon with."""

from __future__ import annotations

from asrtool.predict.simulate.events import Event, Outcome
from asrtool.predict.simulate.scenario import Scenario, load_scenario
from asrtool.predict.simulate.simulate import simulate

STEP_S = 0.1
ALL = (
    "allreduce", "adpsgd", "adpsgd-fixed", "adpsgd-random", "adpsgd-pairs", "adpsgd-d1", "h-adpsgd", "bmuf", "ps-async",
    "ps-sync", "hogwild", "none",
)  # fmt: skip


def scenario(num_learners: int, num_steps: int, *overrides: str) -> Scenario:
    """So many learners with so many steps each of STEP_S, in one epoch of batches of one sample, all in one node."""
    given = (
        f"job.num_samples={num_learners * num_steps}",
        "job.batch=1",
        "job.parameters_m=1",
        f"compute.ms={1000 * STEP_S}",
        "network.learners_per_node=0",
    )
    return load_scenario([], [*given, *overrides])


def run(of: Scenario, name: str, num_learners: int, events: list[Event] | None = None) -> Outcome:
    """The outcome of a strategy with the settings that the scenario has for it."""
    strategy = next(chosen for chosen in of.distributed.strategy if chosen.name == name)
    return simulate(of, strategy, num_learners, events.append if events is not None else None)
