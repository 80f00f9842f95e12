"""Answers of the theory on a strategy, as JSON and in words."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.predict.theory.bounds import Bound, Constants, bounds_of
from asrtool.predict.theory.quadratic import largest_stable
from asrtool.predict.theory.staleness import Staleness, recorded_staleness, steps_of_others, total_staleness
from asrtool.predict.theory.system import SHARED, Floats, Mixing, System, mixing_in_rounds, mixing_one_by_one

if TYPE_CHECKING:
    from asrtool.predict.theory.measure import Measured

MAX_SHOWN = 8  # replicas whose matrix is printed
MIN_FRACTION = 1e-6  # fraction of all updates; a rarer staleness is not in --json
MEANINGS = {
    "smoothness": ("beta", "smoothness of the loss"),
    "noise": ("sigma^2", "variance of the gradient of a learner's batch"),
    "between": ("zeta^2", "variance of the gradient between learners"),
    "start": ("Delta", "loss at the start less the lowest"),
}


@dataclass(frozen=True)
class TheoryResult:
    """Theory of `num_steps` steps of a full-speed learner with plain SGD at `rate`."""

    system: System
    rate: float
    constants: Constants
    num_steps: int
    times: str
    momentum: float = 0.0
    measured: Measured | None = None  # source of the constants, if they were measured

    @functools.cached_property
    def in_rounds(self) -> Mixing | None:
        """Mixing of common rounds, if all learners are equally fast."""
        speeds_N = self.system.speeds_N
        return mixing_in_rounds(self.system) if (speeds_N == speeds_N[0]).all() else None

    @functools.cached_property
    def bounds(self) -> list[Bound | str]:
        """Bounds, or reasons why a strategy has no bound."""
        return bounds_of(self.system, self.constants, self.times)

    @property
    def curvature(self) -> float:
        """Curvature that limits the rate: upward directions only, if known."""
        smoothness, measured = self.constants.smoothness, self.measured
        return measured.curvature if measured and smoothness == measured.constants().smoothness else smoothness


def to_dict(found: TheoryResult) -> dict[str, Any]:
    """Convert to JSON: infinite or unknown numbers are null."""
    system, speeds_N = found.system, found.system.speeds_N
    content = {
        "strategy": system.name,
        "num_learners": system.num_learners,
        "num_replicas": system.num_replicas,
        "rate": found.rate,
        "num_steps": found.num_steps,
        "momentum": found.momentum,
        "step_times": found.times,
        "speeds": speeds_N.tolist(),
        "constants": dataclasses.asdict(found.constants),
        "measured": found.measured and dataclasses.asdict(found.measured),
        "mixing": {"in_rounds": _mixing_dict(found.in_rounds), "one_by_one": _mixing_dict(mixing_one_by_one(system))},
        "staleness": _staleness_dict(recorded_staleness(system, found.times), speeds_N),
        "steps_of_others": _staleness_dict(steps_of_others(system, found.times), speeds_N),
        "bounds": [_bound_dict(bound, found) for bound in found.bounds],
        "largest_stable_rate_times_curvature": dataclasses.asdict(largest_stable(system, found.momentum)),
        "curvature": found.curvature,
    }
    plain: dict[str, Any] = _plain(content)
    return plain


def _mixing_dict(mixing: Mixing | None) -> dict[str, Any] | None:
    if mixing is None:
        return None
    return {
        "matrix": mixing.matrix_NN.tolist(),
        "second_eigenvalue": mixing.second_eigenvalue,
        "spectral_gap": mixing.gap,
        "rho": mixing.rate,
        "steps_to_tenth": mixing.steps_to_tenth,
        "steps": mixing.num_steps,
    }


def _staleness_dict(by_replica: list[Staleness], speeds_N: Floats) -> dict[str, Any]:
    total = total_staleness(by_replica, speeds_N)
    quantiles, *replica_rows = (
        {"mean": one.mean, "median": one.quantile(0.5), "p99": one.quantile(0.99), "largest": one.largest}
        for one in (total, *by_replica)
    )
    fractions = {str(s): float(p) for s, p in enumerate(total.fractions) if p > MIN_FRACTION}
    return {**quantiles, "fractions": fractions, "by_replica": replica_rows}


def _bound_dict(bound: Bound | str, found: TheoryResult) -> dict[str, Any]:
    if isinstance(bound, str):
        return {"promise": False, "why": bound}
    num_steps = found.num_steps * bound.steps_a_round
    return {
        "promise": found.rate <= bound.largest_rate,
        "theorem": bound.theorem,
        "formula": bound.formula,
        "named": bound.symbols,
        "supposes": bound.assumption,
        "step": bound.step,
        "K": num_steps,
        "largest_rate": bound.largest_rate,
        "terms": bound.terms(found.rate, num_steps),
        "value": bound.value(found.rate, num_steps),
        "speed_up_from_K": bound.speed_up_from,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_text(found: TheoryResult) -> str:
    """Format a paragraph for each question, with figures in a table."""
    blocks = (_about(found), _mixing(found), _staleness(found), _constants(found), _bounds(found), _stability(found))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _about(found: TheoryResult) -> Iterator[str]:
    system, num = found.system, found.system.num_learners
    slow = ", ".join(f"learner {i} {factor:g}x slower" for i, factor in sorted(system.slow.items()) if factor != 1)
    yield f"{system.name}: {num} learner{'s' * (num != 1)}, {slow or 'equally fast'}; rate {found.rate:g}"
    if system.node_size > 1:
        outer = f"{system.outer}: {'join the nodes' if system.num_replicas > 1 else 'nothing to join'}"
        yield f"  nodes of {system.node_size} learners average their gradients; {outer}"
    if slow and not system.asynchronous:
        yield f"  all wait for the slowest: a step takes {1 / system.speeds_N.min():g} times as long"


def _mixing(found: TheoryResult) -> Iterator[str]:
    system = found.system
    yield "Mixing"
    if system.num_replicas == 1:
        yield "  one copy of the weights, so nothing to mix"
        return
    both = {"in rounds": found.in_rounds, "one by one": mixing_one_by_one(system)}
    shown = {title: mixing for title, mixing in both.items() if mixing}
    yield _row("", *shown)
    if any(mixing.num_steps > 1 for mixing in shown.values()):
        yield _row("steps a mixing matrix", *(mixing.num_steps for mixing in shown.values()))
    yield _row("second eigenvalue of E[T]", *(mixing.second_eigenvalue for mixing in shown.values()))
    yield _row("spectral gap of E[T]", *(mixing.gap for mixing in shown.values()))
    yield _row("rho, squared distance left", *(mixing.rate for mixing in shown.values()))
    steps = (mixing.steps_to_tenth for mixing in shown.values())
    texts = (f"{num:.1f}" if math.isfinite(num) else "never" for num in steps)
    yield _row("steps until the distance is a tenth", *texts)
    for title, mixing in shown.items():
        yield f"  E[T] {title}{':' if system.num_replicas <= MAX_SHOWN else ': --json has it'}"
        if system.num_replicas <= MAX_SHOWN:
            yield from ("    " + " ".join(f"{value:6.3f}" for value in row) for row in mixing.matrix_NN)
    if system.has_own_ring:
        yield f"  Of the first {len(system.rings):,} orders of the ring, as if each step drew one of them;"
        yield "  pessimistic for a ring with a fixed cycle, which usually mixes faster."
    if len(shown) == 2:
        yield "  In rounds: all step together, from the same weights. One by one: in random order, by speed; a step is"
        yield "  one of a learner of full speed. The distance is the root mean square one from the mean."


def _staleness(found: TheoryResult) -> Iterator[str]:
    system, speeds_N = found.system, found.system.speeds_N
    yield f"Staleness ({found.times} step times)" if system.asynchronous else "Staleness"
    if not system.asynchronous:
        yield "  none: updates are synchronous"
        return
    yield _row("", "mean", "median", "99 %", "largest")
    slow = [i for i, speed in enumerate(speeds_N) if speed < speeds_N.max()][:MAX_SHOWN]
    counts = {"changes, as records have it": recorded_staleness, "steps of others": steps_of_others}
    for title, count in counts.items():
        by_replica = count(system, found.times)
        rows = {title: total_staleness(by_replica, speeds_N)}
        rows |= {f"  of {'node' if system.node_size > 1 else 'learner'} {i}": by_replica[i] for i in slow}
        for name, one in rows.items():
            largest = one.largest if found.times == "constant" else "-"
            yield _row(name, f"{one.mean:.2f}", one.quantile(0.5), one.quantile(0.99), largest)


def _constants(found: TheoryResult) -> Iterator[str]:
    measured = found.measured
    yield "Constants" if measured else "Constants (assumed or given; --measure WORK measures them)"
    for name, (symbol, meaning) in MEANINGS.items():
        yield f"{_row(f'{name}, {symbol}', getattr(found.constants, name))}   {meaning}"
    if not measured:
        return
    yield f"  Measured with {measured.num_batches} batches of {measured.num_groups} learners, with intervals of 95 %:"
    for title, at in (("at the start of training", measured.begin), (f"at {measured.model}", measured.trained)):
        yield f"  {title}"
        for name, interval in vars(at).items():
            yield f"{_row('  ' + name, interval.value)}   {interval.low:.4g} to {interval.high:.4g}"
    yield "  Bounds take the larger values; values in between were not measured."


def _bounds(found: TheoryResult) -> Iterator[str]:
    rate = found.rate
    yield "Bounds on the mean of |grad f(mean w)|^2 over K steps, for plain SGD (docs/theory.md)"
    for bound in found.bounds:
        if isinstance(bound, str):
            yield f"  no promise: {bound}"
            continue
        num = found.num_steps * bound.steps_a_round
        yield f"  {bound.theorem}: {bound.formula}"
        yield "    with " + ", ".join(f"{name} = {value:.4g}" for name, value in bound.symbols.items())
        if bound.assumption:
            yield f"    holds approximately: it supposes {bound.assumption}"
        if rate > bound.largest_rate:
            yield f"    no promise at rate {rate:g}: it has to be {bound.largest_rate:.3g} at most"
        else:
            parts = " + ".join(f"{value:.4g}" for value in bound.terms(rate, num).values())
            what = f"{found.num_steps:,} steps of a learner of full speed, K = {num:,.0f} {bound.step}s"
            yield f"    after {what}: {parts} = {bound.value(rate, num):.4g}"
        yield f"    linear speed-up{_speed_up(bound, found.system)}"


def _speed_up(bound: Bound, system: System) -> str:
    if system.num_learners == 1:
        return ": nothing to speed up, one learner"
    num = bound.speed_up_from
    if not math.isfinite(num):
        return ": no promise, since without noise more learners do not help"
    rounds = "" if bound.step == "round" else f", {num / bound.steps_a_round:,.0f} steps of a learner of full speed"
    rate = f"at a rate that falls as 1 / sqrt(K) and is {bound.best_rate(num):.3g} there"
    return f" promised from K = {num:,.0f} {bound.step}s{rounds}, {rate}"


def _stability(found: TheoryResult) -> Iterator[str]:
    stable, curvature, rate = largest_stable(found.system, found.momentum), found.curvature, found.rate
    momentum = f", momentum {found.momentum:g}" if found.momentum else ""
    rounds = ", in rounds of learners that are equally fast" if found.system.ring else ""
    rounds = ", where learners take turns" if found.system.outer in SHARED else rounds
    yield f"Largest stable rate x curvature on a quadratic{momentum}{rounds}"
    if stable.mean is None and stable.apart is None:
        yield "  not known for this strategy with momentum"
    for title, value in (("mean of the learners", stable.mean), ("differences of learners", stable.apart)):
        if value is None:
            continue
        verdict = "no direction curves upwards, so none diverges by its rate"
        if curvature > 0:
            is_stable = "diverges" if rate > value / curvature else "is stable"
            verdict = f"rate {value / curvature:.3g} at curvature {curvature:.3g}: {rate:g} {is_stable}"
        yield f"{_row(title, value)}   {verdict}"


def _row(name: str, *values: object) -> str:
    texts = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in values)
    return f"  {name:34}" + "".join(f"{text:>12}" for text in texts)
