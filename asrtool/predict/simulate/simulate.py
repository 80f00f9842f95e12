"""Simulate strategies and numbers of learners, and compare them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.asynchronous import simulate_asynchronous
from asrtool.predict.simulate.cluster import Cluster
from asrtool.predict.simulate.events import PARTS, Emit, Outcome
from asrtool.predict.simulate.lock_step import LOCK_STEP, simulate_lock_step
from asrtool.predict.simulate.scenario import Faults, Scenario, Slow, Uncertain
from asrtool.report.markdown import format_table, format_times
from asrtool.settings.schema import Choice

TITLES = dict(zip(PARTS, ("compute", "exchange", "wait", "data", "between"), strict=True))
IN_JSON = (*PARTS, "steps", "bytes", "exchanges", "skipped")
MIN_SHARE = 0.02  # fraction of the time; a larger cause gets a sentence
MIN_SKIPPED = 0.1  # fraction of the exchanges; a larger one gets a sentence


def simulate(scenario: Scenario, strategy: Choice, num_learners: int, emit: Emit | None = None) -> Outcome:
    """Simulate a whole training; `emit` gets the events of weights in order.

    Raises AsrtoolError if strategy and learners do not fit.
    """
    if ":" in strategy.name:
        what = f"distributed.strategy has {strategy.name}: there is no model of how strategies of your own communicate"
        raise AsrtoolError(what, "leave it out; a ring of your own can be simulated: distributed.adpsgd.ring")
    num_servers = getattr(strategy.settings, "num_servers", 0)
    if num_servers > num_learners:
        what = f"distributed.{strategy.name}.num_servers is {num_servers}, and there are {num_learners} learners"
        raise AsrtoolError(what, "choose at most one server a learner")
    # Learners of delay-by-one and of a block drift apart, since none waits for the slowest.
    # Servers of ps-sync answer in turn.
    cluster = Cluster(scenario, num_learners, together=strategy.name == "allreduce")
    is_lock_step = strategy.name in LOCK_STEP or getattr(strategy.settings, "outer", "") == "adpsgd-d1"
    run = simulate_lock_step if is_lock_step else simulate_asynchronous
    return run(cluster, strategy.name, strategy.settings, emit)


@dataclass(frozen=True)
class Row:
    """Result of a strategy and a number of learners.

    `speedup` is over one learner that is not slow. Both times of `interval_s` are the same if nothing is uncertain.
    """

    outcome: Outcome
    speedup: float
    published_h: float | None
    interval_s: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON. Arrays have an entry for each learner."""
        outcome = self.outcome
        learner, fraction = outcome.blame()
        return {
            "strategy": outcome.strategy,
            "num_learners": outcome.num_learners,
            "hours": outcome.seconds / 3600,
            "hours_interval": [seconds / 3600 for seconds in self.interval_s],
            "published_hours": self.published_h,
            "samples_per_s": outcome.samples_per_s,
            "speedup": self.speedup,
            "efficiency": self.speedup / outcome.num_learners,
            "fractions": {TITLES[part]: outcome.fraction(part) for part in PARTS},
            "waited_for": learner if fraction else None,
            "waited_for_fraction": fraction,
            "staleness": outcome.mean_staleness,
            "batches": outcome.num_batches,
            "losses": outcome.num_losses,
            "joined": outcome.num_joined,
            "repeated_batches": outcome.num_repeated,
            "learners": {name: getattr(outcome, name).tolist() for name in IN_JSON},
        }


def compare(scenario: Scenario, ends: Sequence[Scenario] = ()) -> list[Row]:
    """Return a row for each strategy and number of learners.

    `ends` are the same scenario at the ends of uncertain settings.
    """
    published, job, found = scenario.published.by_case(), scenario.job, cases(scenario)
    requests = [(one, *case) for case in found for one in (scenario, *ends)]
    batch = job.global_batch // min(scenario.distributed.num_learners) or job.batch
    alone = replace(  # one learner that is neither slow nor lost
        scenario,
        slow=Slow(),
        faults=Faults(),
        job=replace(job, batch=max(1, batch), global_batch=0),
        compute=replace(scenario.compute, batch=scenario.compute.batch or job.batch),
    )
    requests.append((alone, Choice.of("strategy", "single"), 1))
    check_cases(requests)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # compiled events run beside each other
        *outcomes, one_learner = pool.map(simulate, *zip(*requests, strict=True))
    rows, each = [], 1 + len(ends)
    for place, (strategy, number) in enumerate(found):
        at_ends = outcomes[each * place : each * (place + 1)]
        seconds = [outcome.seconds for outcome in at_ends]
        speedup, published_h = one_learner.seconds / seconds[0], published.get((strategy.name, number))
        rows.append(Row(at_ends[0], speedup, published_h, (min(seconds), max(seconds))))
    return rows


def cases(scenario: Scenario) -> list[tuple[Choice, int]]:
    """Return possible strategies and numbers of learners; AsrtoolError if none is."""
    refused, distributed = refusals(scenario), scenario.distributed
    every = itertools.product(distributed.num_learners, distributed.strategy)
    found = [(strategy, number) for number, strategy in every if (strategy.name, number) not in refused]
    if not found:
        raise AsrtoolError(next(iter(refused.values())), "choose another --strategy")
    return found


def refusals(scenario: Scenario) -> dict[tuple[str, int], str]:
    """Return impossible strategies and numbers of learners -> reason."""
    every = itertools.product(scenario.distributed.num_learners, scenario.distributed.strategy)
    reasons = {(strategy.name, number): _why_not(scenario, strategy.name, number) for number, strategy in every}
    return {case: f"strategy {case[0]}: {why}" for case, why in reasons.items() if why}


def check_cases(requests: Sequence[tuple[Scenario, Choice, int]]) -> None:
    """Simulate one sample of each case; raises AsrtoolError before a long simulation."""
    for scenario, strategy, num_learners in requests:
        simulate(replace(scenario, job=replace(scenario.job, num_samples=1, num_epochs=1)), strategy, num_learners)


def _why_not(scenario: Scenario, strategy: str, num_learners: int) -> str:
    """Return the reason for which `num_learners` cannot train by a strategy, or ''."""
    if strategy == "single" and num_learners > 1:
        return f"it has one learner, not {num_learners}"
    node_size = scenario.network.node_size(num_learners)
    if strategy == "hogwild" and num_learners > node_size:
        return f"{num_learners} learners of {node_size} a node have no common memory"
    return ""


def title(scenario: Scenario) -> str:
    """Describe training and cluster in two lines."""
    job, network, learners = scenario.job, scenario.network, scenario.distributed.num_learners
    batch = f"{job.global_batch} of all learners" if job.global_batch else str(job.batch)
    trained = f"{job.parameters_m:g} million parameters, {job.num_epochs} x {job.num_samples:,} samples, batch {batch}"
    nodes = f"{network.learners_per_node} a node, {network.gbit_per_s:g} Gbit/s between nodes"
    where = nodes if 0 < network.learners_per_node < max(learners) else f"one node, {network.inner_gbit_per_s:g} Gbit/s"
    slow = "".join(f"; learner {learner} {factor:g}x slower" for learner, factor in scenario.slow.factors().items())
    return f"{trained}\n{', '.join(map(str, learners))} learners, {where}{slow}"


def describe(rows: Sequence[Row], uncertain: Uncertain) -> str:
    """Return table and conclusion, and the reasons for intervals of time."""
    numbers = dict.fromkeys(row.outcome.num_learners for row in rows)
    conclusion = [_conclude([row for row in rows if row.outcome.num_learners == number]) for number in numbers]
    text = "\n".join([_table(rows), "", *conclusion])
    if all(low == high for low, high in (row.interval_s for row in rows)):
        return text
    ends = " to ".join(", ".join(end) or "as it is" for end in (uncertain.low, uncertain.high))
    why = f", since {uncertain.why} is not known" if uncertain.why else ""
    return f"{text}\nTimes are intervals, {ends}{why}; all else is of the scenario as it is."


def _table(rows: Sequence[Row]) -> str:
    """Return a table; percentages are of the time of all learners."""
    has_published = any(row.published_h for row in rows)
    cells = []
    for row in rows:
        outcome = row.outcome
        published = [f"{row.published_h:g}" if row.published_h else "-"] if has_published else []
        speeds = [f"{outcome.samples_per_s:.4g}", f"{row.speedup:.3g}"]
        speeds.append(f"{100 * row.speedup / outcome.num_learners:.0f}")
        fractions = [f"{100 * outcome.fraction(part):.1f}" for part in PARTS]
        first = [outcome.strategy, outcome.num_learners, _interval(row), *published]
        cells.append([*first, *speeds, *fractions, f"{outcome.mean_staleness:.1f}"])
    head = ["strategy", "learners", "time", *(["published hours"] if has_published else [])]
    head += ["samples/s", "speed-up", "% of linear", *(f"% {TITLES[part]}" for part in PARTS), "staleness"]
    return format_table(head, cells)


def _interval(row: Row) -> str:
    """Format the time of the training; a range if it is uncertain."""
    return format_times(*dict.fromkeys(row.interval_s))


def _conclude(rows: Sequence[Row]) -> str:
    """Describe the fastest strategy of a number of learners, and the others' losses."""
    number = rows[0].outcome.num_learners
    bound = next((row for row in rows if row.outcome.strategy == "none" and len(rows) > 1), None)
    ordered = sorted((row for row in rows if row is not bound), key=lambda row: row.outcome.seconds)
    best = ordered[0]
    fastest = f"{best.outcome.strategy} takes {_interval(best)}, {best.speedup:.3g} times as fast as one."
    sentences = [f"{number} learner{'s' * (number > 1)}: {fastest}", *filter(None, map(_cause, ordered))]
    if bound:
        sentences.append(f"Without any communication it would be {_interval(bound)}.")
    return " ".join(sentences)


def _cause(row: Row) -> str:
    """Describe the main loss of time of a strategy, if it is large."""
    outcome = row.outcome
    learner, blamed = outcome.blame()
    wait = outcome.fraction("wait_s")
    name = outcome.strategy
    if blamed > MIN_SHARE and blamed > 0.5 * wait:
        share, what = blamed, f"learner {learner}"
    elif wait > MIN_SHARE:
        by_others = outcome.blamed_s.sum() > 0.5 * outcome.wait_s.sum()
        share, what = wait, "whoever is slowest" if by_others else "messages"
    else:
        share, what = outcome.fraction("data_s"), "data"
    text = f"{name} waits {100 * share:.0f} % of the time for {what} ({_interval(row)})." if share > MIN_SHARE else ""
    if outcome.skipped.sum() > MIN_SKIPPED * outcome.steps.sum():
        share = 100 * outcome.skipped.sum() / outcome.steps.sum()
        text += f" {name} skips {share:.0f} % of its exchanges, for which the links are too slow."
    if outcome.num_losses:
        what = f"repeats {outcome.num_repeated:,} batches" if outcome.num_repeated else "continues with the others"
        losses = f"{outcome.num_losses} losses" if outcome.num_losses > 1 else "a loss"
        text += f" After {losses} {name} {what}."
    return text.strip()
