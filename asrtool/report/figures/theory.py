"""Prediction, measurement and any bound of a strategy in one figure."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.files import writing
from asrtool.predict.theory.bounds import Bound
from asrtool.predict.theory.describe import TheoryResult
from asrtool.predict.theory.quadratic import Trajectory, draw, predict
from asrtool.report.figures.figure import BLUE, DARK, ORANGE, check_suffix, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_STEPS = 20_000  # steps of all learners that are drawn
NUM_DOTS = 60


def plot_theory(found: TheoryResult, path: Path) -> None:
    """Draw `found` to `path`; AsrtoolError if nothing converges."""
    check_suffix(path, "theory.svg")
    bound = next((bound for bound in found.bounds if isinstance(bound, Bound)), None)
    in_rounds = found.in_rounds is not None and (bound is None or bound.step == "round")
    steps_a_round = 1.0 if in_rounds else float(found.system.speeds_N.sum())
    num_steps = max(2, min(round(found.num_steps * steps_a_round), MAX_STEPS))
    arguments = (found.system, found.constants, found.rate, num_steps, in_rounds)
    with np.errstate(all="ignore"):
        courses = predict(*arguments), draw(*arguments)
    if not all(np.isfinite(course.gradient_K).all() and np.isfinite(course.distance_K).all() for course in courses):
        what = f"at rate {found.rate:g} and smoothness {found.constants.smoothness:g} the weights diverge"
        raise AsrtoolError(f"--plot: {what}", "choose a smaller --rate")
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        save_figure(functools.partial(_draw, found=found, bound=bound, courses=courses, in_rounds=in_rounds), path)


def _draw(
    figure: Figure, found: TheoryResult, bound: Bound | None, courses: tuple[Trajectory, Trajectory], in_rounds: bool
) -> None:
    """Draw the bounded quantity on the left, the consensus distance on the right."""
    predicted, drawn = courses
    rate, system = found.rate, found.system
    steps_K = np.arange(1, len(predicted.gradient_K) + 1)
    figure.set_figheight(figure.get_figheight() + 0.4)
    promise = "at most the bound is promised" if bound else "there is no bound"
    if bound and rate > bound.largest_rate:
        promise = f"no bound above rate {bound.largest_rate:.3g}"
        bound = None
    title = f"{system.name}, {system.num_learners} learners, rate {rate:g}; lower is better, {promise}"
    figure.suptitle(title, fontsize="medium")
    left, right = panels(figure, 2)
    if bound:
        values = [bound.value(rate, int(num)) for num in steps_K]
        left.loglog(steps_K, values, color=DARK, linestyle="--", label=f"bound, {bound.theorem}")
    left.loglog(steps_K, predicted.mean_gradient_K(), color=BLUE, label="predicted, quadratic")
    shown = np.unique(np.geomspace(1, len(steps_K), NUM_DOTS).astype(int)) - 1
    left.loglog(steps_K[shown], drawn.mean_gradient_K()[shown], ".", color=ORANGE, label="measured, quadratic")
    step = "rounds" if in_rounds else "gradients of all"
    left.set(xlabel=f"K, {step}", ylabel="mean |grad f(mean w)|^2 up to K", title="How far from a minimum")
    legend: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2)}
    left.legend(**legend)
    if system.num_replicas == 1:
        right.set_axis_off()
        return
    if bound and bound.extra and in_rounds:
        most = bound.extra * rate**2 / found.constants.smoothness**2
        right.axhline(most, color=DARK, linestyle="--", label="bound")
    right.loglog(steps_K[1:], predicted.distance_K[1:], color=BLUE, label="predicted")
    right.loglog(steps_K[shown[1:]], drawn.distance_K[shown[1:]], ".", color=ORANGE, label="measured")
    right.set(xlabel=f"steps, {step}", ylabel="mean |w^i - mean w|^2", title="How far learners differ")
    right.legend(**legend)
