"""Strategies and numbers of learners beside one another: a row each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.outcome import PARTS, Outcome
from asrtool.predict.simulate.scenario import Scenario
from asrtool.predict.simulate.settings import Faults, Slow
from asrtool.predict.simulate.simulate import simulate
from asrtool.settings.schema import Choice

TITLES = {
    "compute_s": "compute",
    "comm_s": "exchange",
    "wait_s": "wait",
    "data_s": "data",
    "between_s": "between",
}


@dataclass(frozen=True)
class Row:
    """A strategy by so many learners. `alone_s` is what one learner that is not slow would take."""

    outcome: Outcome
    alone_s: float
    published_h: float | None
    interval_s: tuple[float, float]  # of the whole training; both are the same where nothing is uncertain

    @property
    def hours(self) -> float:
        """Of the whole training."""
        return self.outcome.seconds / 3600

    @property
    def speedup(self) -> float:
        """Over one learner."""
        return self.alone_s / self.outcome.seconds

    def to_dict(self) -> dict[str, Any]:
        """For --json. Arrays have an entry for each learner."""
        outcome = self.outcome
        learner, fraction = outcome.blame()
        return {
            "strategy": outcome.strategy,
            "num_learners": outcome.num_learners,
            "hours": self.hours,
            "hours_interval": [seconds / 3600 for seconds in self.interval_s],
            "published_hours": self.published_h,
            "samples_per_s": outcome.samples_per_s,
            "speedup": self.speedup,
            "efficiency": self.speedup / outcome.num_learners,
            "fractions": {TITLES[part]: outcome.fraction(part) for part in PARTS},
            "waited_for": learner if fraction else None,
            "waited_for_fraction": fraction,
            "staleness": float(outcome.staleness.sum() / max(1, outcome.steps.sum())),
            "batches": outcome.num_batches,
            "losses": outcome.num_losses,
            "joined": outcome.num_joined,
            "repeated_batches": outcome.num_repeated,
            "learners": {
                name: getattr(outcome, name).tolist() for name in (*PARTS, "steps", "bytes", "exchanges", "skipped")
            },
        }


def compare(scenario: Scenario, ends: Sequence[Scenario] = ()) -> list[Row]:
    """A row for each strategy of the scenario and each number of learners. `single` is one learner alone.

    `ends` are the same scenario at the ends of what is uncertain.
    """
    published = scenario.published.by_case()
    alone_s = simulate(without_trouble(scenario), Choice.of("strategy", "single"), 1).seconds
    rows = []
    for strategy, number in cases(scenario):
        outcome = simulate(scenario, strategy, number)
        seconds = [outcome.seconds, *(simulate(end, strategy, number).seconds for end in ends)]
        rows.append(Row(outcome, alone_s, published.get((strategy.name, number)), (min(seconds), max(seconds))))
    return rows


def rows_to_plot(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What asrtool.report.figures.simulated draws."""
    return [row.to_dict() for row in rows]


def cases(scenario: Scenario) -> Iterator[tuple[Choice, int]]:
    """What is simulated: strategies that such learners cannot have are left out where there are others.

    Raises AsrtoolError where none is left.
    """
    chosen, numbers = scenario.distributed.strategy, scenario.distributed.num_learners
    all_cases = [(strategy, number) for number in numbers for strategy in chosen]
    found = [(strategy, number) for strategy, number in all_cases if not why_not(scenario, strategy, number)]
    if not found:
        strategy, number = all_cases[0]
        raise AsrtoolError(
            f"strategy {strategy.name}: {why_not(scenario, strategy, number)}", "choose another --strategy"
        )
    yield from found


def why_not(scenario: Scenario, strategy: Choice, num_learners: int) -> str:
    """Why so many learners cannot train by a strategy; empty where they can."""
    if strategy.name == "single" and num_learners > 1:
        return f"it has one learner, not {num_learners}"
    node_size = scenario.network.learners_per_node or num_learners
    if strategy.name == "hogwild" and num_learners > node_size:
        return f"{num_learners} learners of {node_size} a node have no common memory"
    return ""


def without_trouble(scenario: Scenario) -> Scenario:
    """The same of one learner that is not slow and not lost, whose batch is that of a learner."""
    job = scenario.job
    batch = job.global_batch // min(scenario.distributed.num_learners) or job.batch
    return dataclasses.replace(
        scenario,
        slow=Slow(),
        faults=Faults(),
        job=dataclasses.replace(job, batch=max(1, batch), global_batch=0),
        compute=dataclasses.replace(scenario.compute, batch=scenario.compute.batch or job.batch),
    )
