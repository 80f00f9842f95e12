"""Answers of the theory on a strategy, as one object and in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asrtool.predict.theory.bounds import Bound, Constants, NoPromise, bounds_of
from asrtool.predict.theory.mixing import Mixing, mixing_in_rounds, mixing_one_by_one
from asrtool.predict.theory.quadratic import Stable, largest_stable
from asrtool.predict.theory.staleness import Staleness, of_all, recorded_staleness, steps_of_others
from asrtool.predict.theory.system import SHARED, System

if TYPE_CHECKING:
    from asrtool.predict.theory.measure import Measured

MOST_SHOWN = 8  # replicas whose matrix is printed
SEEN = 1e-6  # of all updates: a staleness that --json lists
SYMBOLS = {"smoothness": "beta", "noise": "sigma^2", "between": "zeta^2", "start": "Delta"}
MEANINGS = {
    "smoothness": "smoothness of the loss",
    "noise": "variance of the gradient of a learner's batch",
    "between": "variance of the gradient between learners",
    "start": "loss at the start less the lowest",
}


@dataclass(frozen=True)
class Question:
    """Question on `num_steps` steps of a full-speed learner with plain SGD at `rate`."""

    system: System
    rate: float
    constants: Constants
    num_steps: int
    times: str
    momentum: float = 0.0


@dataclass(frozen=True)
class Answer:
    """All of it; `measured` where the constants were."""

    question: Question
    in_rounds: Mixing | None
    one_by_one: Mixing | None
    recorded: Sequence[Staleness]
    others: Sequence[Staleness]
    bounds: Sequence[Bound | NoPromise]
    stable: Stable
    measured: Measured | None = None

    @property
    def curvature(self) -> float:
        """Curvature that limits the rate: upward directions only, if known."""
        smoothness, measured = self.question.constants.smoothness, self.measured
        return measured.curvature if measured and smoothness == measured.constants().smoothness else smoothness


def answer(question: Question, measured: Measured | None = None) -> Answer:
    """Ask theory."""
    system, times = question.system, question.times
    speeds_N = system.speeds_N
    return Answer(
        question,
        mixing_in_rounds(system) if (speeds_N == speeds_N[0]).all() else None,
        mixing_one_by_one(system),
        recorded_staleness(system, times),
        steps_of_others(system, times),
        bounds_of(system, question.constants, times),
        largest_stable(system, question.momentum),
        measured,
    )


def to_dict(found: Answer) -> dict[str, Any]:
    """Convert to JSON: infinite or unknown numbers are null."""
    question = found.question
    system = question.system
    speeds_N = system.speeds_N
    content = {
        "strategy": system.name,
        "num_learners": system.num_learners,
        "num_replicas": system.num_replicas,
        "rate": question.rate,
        "num_steps": question.num_steps,
        "momentum": question.momentum,
        "step_times": question.times,
        "speeds": speeds_N.tolist(),
        "constants": dataclasses.asdict(question.constants),
        "measured": _measured_dict(found.measured),
        "mixing": {"in_rounds": _mixing_dict(found.in_rounds), "one_by_one": _mixing_dict(found.one_by_one)},
        "staleness": _staleness_dict(found.recorded, speeds_N),
        "steps_of_others": _staleness_dict(found.others, speeds_N),
        "bounds": [_bound_dict(bound, question) for bound in found.bounds],
        "largest_stable_rate_times_curvature": dataclasses.asdict(found.stable),
        "curvature": found.curvature,
    }
    finite: dict[str, Any] = _finite(content)
    return finite


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


def _staleness_dict(by_replica: Sequence[Staleness], speeds_N: Any) -> dict[str, Any]:
    total = of_all(list(by_replica), speeds_N)
    return {
        **_quantiles(total),
        "fractions": {str(s): float(p) for s, p in enumerate(total.fractions) if p > SEEN},
        "by_replica": [_quantiles(one) for one in by_replica],
    }


def _quantiles(one: Staleness) -> dict[str, float]:
    return {"mean": one.mean, "median": one.quantile(0.5), "p99": one.quantile(0.99), "largest": one.largest}


def _bound_dict(bound: Bound | NoPromise, question: Question) -> dict[str, Any]:
    if isinstance(bound, NoPromise):
        return {"promise": False, "why": bound.why}
    num_steps = question.num_steps * bound.steps_a_round
    holds = question.rate <= bound.largest_rate
    return {
        "promise": holds,
        "theorem": bound.theorem,
        "formula": bound.formula,
        "named": dict(bound.named),
        "supposes": bound.supposes,
        "step": bound.step,
        "K": num_steps,
        "largest_rate": bound.largest_rate,
        "terms": bound.terms(question.rate, num_steps),
        "value": bound.value(question.rate, num_steps),
        "speed_up_from_K": bound.speed_up_from,
    }


def _measured_dict(measured: Measured | None) -> dict[str, Any] | None:
    return None if measured is None else {**dataclasses.asdict(measured), "model": str(measured.model)}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_text(found: Answer) -> str:
    """A paragraph for each question, with figures in a table."""
    blocks = (_about(found), _mixing(found), _staleness(found), _constants(found), _bounds(found), _stability(found))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _about(found: Answer) -> Iterator[str]:
    question = found.question
    system = question.system
    slow = ", ".join(f"learner {i} {factor:g}x slower" for i, factor in sorted(system.slow.items()) if factor != 1)
    yield f"{system.name}: {_count(system.num_learners, 'learner')}, {slow or 'equally fast'}; rate {question.rate:g}"
    if system.node_size > 1:
        how = "join the nodes" if system.num_replicas > 1 else "nothing to join"
        outer = f"{system.outer}: {how}"
        yield f"  nodes of {system.node_size} learners average their gradients; {outer}"
    if slow and not system.asynchronous:
        yield f"  all wait for the slowest: a step takes {1 / system.speeds_N.min():g} times as long"


def _mixing(found: Answer) -> Iterator[str]:
    system = found.question.system
    yield "Mixing"
    if system.num_replicas == 1:
        yield "  one copy of the weights, so nothing to mix"
        return
    columns = [("in rounds", found.in_rounds), ("one by one", found.one_by_one)]
    shown = [(title, mixing) for title, mixing in columns if mixing]
    yield _row("", *(title for title, _ in shown))
    if any(mixing.num_steps > 1 for _, mixing in shown):
        yield _row("steps that are one T", *(mixing.num_steps for _, mixing in shown))
    yield _row("second eigenvalue of E[T]", *(_short(mixing.second_eigenvalue) for _, mixing in shown))
    yield _row("spectral gap of E[T]", *(_short(mixing.gap) for _, mixing in shown))
    yield _row("rho, squared distance left", *(_short(mixing.rate) for _, mixing in shown))
    yield _row("steps until the distance is a tenth", *(_steps(mixing.steps_to_tenth) for _, mixing in shown))
    for title, mixing in shown:
        yield f"  E[T] {title}{':' if system.num_replicas <= MOST_SHOWN else ': --json has it'}"
        if system.num_replicas <= MOST_SHOWN:
            yield from ("    " + " ".join(f"{value:6.3f}" for value in row) for row in mixing.matrix_NN)
    if system.has_own_ring:
        yield f"  Of the first {len(system.rings()):,} orders of the ring, as if each step drew one of them."
    if found.in_rounds and found.one_by_one:
        yield "  In rounds: all step together, from the same weights. One by one: in random order, by speed; a step is"
        yield "  one of a learner of full speed. The distance is the root mean square one from the mean."


def _staleness(found: Answer) -> Iterator[str]:
    question = found.question
    system = question.system
    yield f"Staleness ({question.times} step times)" if system.asynchronous else "Staleness"
    if not system.asynchronous:
        yield "  none: no weights change between a gradient and its update but as the rule says"
        return
    yield _row("", "mean", "median", "99 %", "largest")
    for title, by_replica in (("changes, as records have it", found.recorded), ("steps of others", found.others)):
        rows = [(title, of_all(list(by_replica), system.speeds_N))]
        rows += [(f"  of {'node' if system.node_size > 1 else 'learner'} {i}", by_replica[i]) for i in _special(system)]
        for name, one in rows:
            largest = one.largest if question.times == "constant" else "-"
            yield _row(name, f"{one.mean:.2f}", one.quantile(0.5), one.quantile(0.99), largest)


def _special(system: System) -> list[int]:
    """Return the slow learners."""
    return [i for i, speed in enumerate(system.speeds_N) if speed < system.speeds_N.max()][:MOST_SHOWN]


def _constants(found: Answer) -> Iterator[str]:
    measured = found.measured
    yield "Constants" if measured else "Constants (assumed or given; --measure WORK measures them)"
    for name, value in dataclasses.asdict(found.question.constants).items():
        yield f"{_row(f'{name}, {SYMBOLS[name]}', _short(value))}   {MEANINGS[name]}"
    if not measured:
        return
    yield f"  Measured with {measured.num_batches} batches of {measured.num_groups} learners, with intervals of 95 %:"
    for title, at in (("as training begins", measured.begin), (f"at {measured.model}", measured.trained)):
        yield f"  {title}"
        for field in dataclasses.fields(at):
            interval = getattr(at, field.name)
            yield f"{_row('  ' + field.name, _short(interval.value))}   {interval.low:.4g} to {interval.high:.4g}"
    yield "  The larger ones count, since a bound needs them on the whole way; what lies between was not seen."


def _bounds(found: Answer) -> Iterator[str]:
    question = found.question
    yield "Bounds on the mean of |grad f(mean w)|^2 over K steps, for plain SGD (docs/theory.md)"
    for bound in found.bounds:
        if isinstance(bound, NoPromise):
            yield f"  no promise: {bound.why}"
            continue
        num = question.num_steps * bound.steps_a_round
        terms = bound.terms(question.rate, num)
        yield f"  {bound.theorem}: {bound.formula}"
        yield "    with " + ", ".join(f"{name} = {_short(value)}" for name, value in bound.named.items())
        if bound.supposes:
            yield f"    holds approximately: it supposes {bound.supposes}"
        if question.rate > bound.largest_rate:
            yield f"    no promise at rate {question.rate:g}: it has to be {bound.largest_rate:.3g} at most"
        else:
            parts = " + ".join(_short(value) for value in terms.values())
            what = f"{question.num_steps:,} steps of a learner of full speed, K = {num:,.0f} {bound.step}s"
            yield f"    after {what}: {parts} = {_short(bound.value(question.rate, num))}"
        yield f"    {_speed_up(bound, question)}"


def _speed_up(bound: Bound, question: Question) -> str:
    if question.system.num_learners == 1:
        return "linear speed-up: nothing to speed up, one learner"
    if not math.isfinite(bound.speed_up_from):
        return "linear speed-up: no promise, since without noise more learners do not help"
    num = bound.speed_up_from
    rounds = "" if bound.step == "round" else f", {num / bound.steps_a_round:,.0f} steps of a learner of full speed"
    rate = f"at a rate that falls as 1 / sqrt(K) and is {bound.best_rate(num):.3g} there"
    return f"linear speed-up promised from K = {num:,.0f} {bound.step}s{rounds}, {rate}"


def _stability(found: Answer) -> Iterator[str]:
    question, stable = found.question, found.stable
    system = question.system
    momentum = f", momentum {question.momentum:g}" if question.momentum else ""
    rounds = ", in rounds of learners that are equally fast" if system.ring else ""
    rounds = ", where learners take turns" if system.outer in SHARED else rounds
    yield f"Largest stable rate x curvature on a quadratic{momentum}{rounds}"
    if stable.mean is None and stable.apart is None:
        yield "  not known for this strategy with momentum"
    for title, value in (("mean of the learners", stable.mean), ("differences of learners", stable.apart)):
        if value is not None:
            yield f"{_row(title, _short(value))}   {_stable_rate(value, found.curvature, question.rate)}"


def _stable_rate(value: float, curvature: float, rate: float) -> str:
    if curvature <= 0:
        return "no direction curves upwards, so none diverges by its rate"
    largest = value / curvature
    return f"rate {largest:.3g} at curvature {curvature:.3g}: {rate:g} {'diverges' if rate > largest else 'is stable'}"


def _row(name: str, *values: object) -> str:
    return f"  {name:34}" + "".join(f"{value!s:>12}" for value in values)


def _short(value: float) -> str:
    return f"{value:.4g}"


def _steps(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "never"


def _count(num: int, what: str) -> str:
    return f"{num} {what}{'' if num == 1 else 's'}"
