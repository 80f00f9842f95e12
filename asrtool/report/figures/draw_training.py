"""Draw the figures of a training: loss, consensus, speed and time of its learners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from asrtool.report.figures.figure import (
    BETWEEN,
    BLUE,
    DARK,
    GREY,
    ORANGE,
    PARTS,
    WIDE_INCHES,
    add_legend,
    panels,
    short,
    stack_bars,
)
from asrtool.report.training import Floats, TrainingRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS = 200  # points of a curve
MIN_STEPS = 5  # whose mean is a point


def draw_loss(figure: Figure, run: TrainingRun) -> None:
    """Draw the smoothed training loss and the dev loss, by utterances and seconds."""
    samples, loss = smooth(run.all_steps())
    by_samples, by_seconds = panels(figure, 2, share_y=True)
    for axes, train_x, dev_x in (
        (by_samples, samples, run.dev[:, 0]),
        (by_seconds, run.seconds_at(samples), run.seconds_at(run.dev[:, 0])),
    ):
        axes.plot(train_x, loss, color=BLUE, label="train")
        axes.plot(dev_x, run.dev[:, 1], "o-", color=ORANGE, markersize=4, label="dev")
    _scale(by_samples, np.concatenate([loss, run.dev[:, 1]]))
    for axes, xlabel in ((by_samples, "utterances trained"), (by_seconds, "seconds of training")):
        place = axes.get_subplotspec()
        axes.set(xlabel=xlabel, ylabel="loss, nats a token" if place and place.is_first_col() else "")
    add_legend(figure)


def draw_errors(figure: Figure, run: TrainingRun) -> None:
    """Draw the percentages of wrong words and targets on dev by epoch."""
    axes = figure.subplots()
    for column, label, colour in ((3, "words", BLUE), (2, "tokens or frames", ORANGE)):
        if not np.isnan(run.dev[:, column]).all():
            axes.plot(run.dev_epochs, 100 * run.dev[:, column], "o-", color=colour, markersize=4, label=label)
    axes.set(xlabel="epoch", ylabel="wrong on dev, %")
    axes.set_ylim(bottom=0)
    axes.locator_params("x", integer=True)
    add_legend(figure)


def draw_consensus(figure: Figure, run: TrainingRun) -> None:
    """Draw consensus distance and drift at each synchronisation."""
    distance, drift = panels(figure, 2)
    samples = run.consensus[:, 0]
    for axes, values, label in (
        (distance, run.consensus[:, 1], "consensus distance / |mean|"),
        (drift, run.consensus[:, 2], "drift of the mean / |mean|"),
    ):
        axes.plot(samples, values, ".-", color=BLUE, markersize=4)
        _scale(axes, values)
        axes.set(xlabel="utterances trained", ylabel=label)


def draw_hosts(figure: Figure, run: TrainingRun) -> None:
    """Draw steps a second and staleness of each host over the seconds of training."""
    for axes, column, label in zip(panels(figure, 2), (1, 2), ("steps a second", "mean staleness"), strict=True):
        for host, rates in run.host_rates.items():
            axes.plot(rates[:, 0], rates[:, column], label=short(host))
        axes.set(xlabel="seconds of training", ylabel=label)
        axes.set_ylim(bottom=0)
    add_legend(figure)


def smooth(steps: NDArray[np.void]) -> tuple[Floats, Floats]:
    """Return samples and loss of `steps`, averaged over windows of equal size."""
    steps = steps[np.isfinite(steps["loss"])]
    num_points = int(np.clip(len(steps) // MIN_STEPS, 1, MAX_POINTS))
    begins = np.arange(num_points) * len(steps) // num_points
    lengths = np.diff(begins, append=len(steps))
    samples, loss = (np.add.reduceat(steps[name].astype(float), begins) / lengths for name in ("samples", "loss"))
    return samples, loss


def _scale(axes: Axes, values: Floats) -> None:
    """Use a log scale if `values` differ much, else start at zero."""
    values = values[np.isfinite(values)]
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    if low <= 0 or high < 3 * low:
        axes.set_ylim(bottom=0)
        return
    axes.set_yscale("log")
    if high < 100 * low:
        from matplotlib.ticker import LogLocator, NullLocator

        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())


WINDOW_STEPS = 12  # drawn of each learner, at the start and in the middle of a training
MAX_STEPS = 400  # steps of all learners; above it only some of each are drawn
ROWS_INCHES = 6.0  # height for many learners; of few, each has a row of ROW_INCHES
ROW_INCHES = 0.22
MAX_NAMES = 32  # labels of rows


def time_fractions(run: TrainingRun, rank: int) -> dict[str, float]:
    """Return the fractions of learner `rank`'s lifetime by PARTS, and BETWEEN.

    Between steps a learner evaluates, saves, and waits to synchronise.
    """
    steps = run.learners[rank]
    totals = {part: float(steps[f"{part}_s"].sum()) for part in PARTS}
    in_steps = sum(totals.values())
    total = max(run.lifetime_s(rank), in_steps)
    fractions = {part: seconds / total for part, seconds in totals.items()}
    return {**fractions, BETWEEN: 1 - in_steps / total}


def draw_learners(figure: Figure, run: TrainingRun) -> None:
    """Draw steps a second of each learner, and the parts of its time."""
    figure.set_figheight(1.4 + _rows_inches(run))
    speed, fraction = panels(figure, 2, share_y=True)
    ranks = list(run.learners)
    speed.barh(np.arange(len(ranks)), [len(run.learners[rank]) / run.lifetime_s(rank) for rank in ranks], color=DARK)
    speed.set(xlabel="steps a second", ylabel="learner")
    _name_rows(speed, ranks)
    stack_bars(fraction, {**PARTS, BETWEEN: GREY}, [time_fractions(run, rank) for rank in ranks], "its time")
    figure.legend(loc="outside upper center", ncols=len(PARTS) + 1 if figure.get_figwidth() >= WIDE_INCHES else 3)


def draw_timeline(figure: Figure, run: TrainingRun) -> None:
    """Draw steps of each learner at the start and in the middle of the training.

    Records have sums, so the parts of a step are drawn in the order of PARTS.
    """
    figure.set_figheight(1.6 + 2 * (0.6 + _rows_inches(run)))
    windows = timeline_windows(run)
    zero = windows[0][0]
    for axes, window in zip(figure.subplots(len(windows), 1), windows, strict=True):
        draw_steps(axes, run, window, zero)
    axes.set(xlabel="seconds since the first step")
    from matplotlib.patches import Patch

    patches = [Patch(color=colour, label=part) for part, colour in PARTS.items()]
    figure.legend(handles=patches, loc="outside upper center", ncols=len(PARTS))


def draw_steps(axes: Axes, run: TrainingRun, window: tuple[float, float], zero: float) -> None:
    """Draw the steps in a time window, a row a learner; `zero` is the 0 of the axis."""
    begin, end = window
    rows = [step_spans(steps, begin, end) for steps in run.learners.values()]
    for part, colour in PARTS.items():
        _draw_spans(axes, [spans[part] - zero for spans in rows], colour)
    axes.set(xlim=(begin - zero, end - zero), ylabel="learner")
    _name_rows(axes, list(run.learners))


def timeline_windows(run: TrainingRun) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return two time windows in seconds since 1970: the first steps, and middle ones.

    They have a fixed number of steps, so a drawing does not grow with the training.
    """
    steps = run.all_steps()
    begins = np.sort(steps["begin"] - steps["data_s"])
    last = float((steps["begin"] + steps["compute_s"] + steps["wait_s"] + steps["comm_s"]).max())
    length = min(WINDOW_STEPS * len(run.learners), MAX_STEPS)
    edges = [*begins.tolist(), last]
    middle = len(begins) // 2
    return (edges[0], edges[min(length, len(begins))]), (edges[middle], edges[min(middle + length, len(begins))])


def step_spans(steps: NDArray[np.void], begin: float, end: float) -> dict[str, Floats]:
    """Return (begin, end) seconds of `steps` by PARTS, cut to a window."""
    at = steps["begin"] - steps["data_s"]
    spans = {}
    for part in PARTS:
        until = at + steps[f"{part}_s"]
        cut, cut_until = np.maximum(at, begin), np.minimum(until, end)
        seen = cut < cut_until
        spans[part] = np.stack([cut, cut_until], axis=1)[seen]
        at = until
    return spans


def _draw_spans(axes: Axes, rows: list[Floats], colour: str) -> None:
    """Draw boxes, a row a learner, as one path, since there may be thousands."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    boxes = [
        np.array([[begin, row - 0.4], [end, row - 0.4], [end, row + 0.4], [begin, row + 0.4]])
        for row, spans in enumerate(rows)
        for begin, end in spans
    ]
    if boxes:
        axes.add_patch(PathPatch(Path.make_compound_path_from_polys(np.array(boxes)), color=colour, linewidth=0))


def _rows_inches(run: TrainingRun) -> float:
    return min(ROW_INCHES * len(run.learners), ROWS_INCHES)


def _name_rows(axes: Axes, ranks: list[int]) -> None:
    every = -(-len(ranks) // MAX_NAMES)
    axes.set_yticks(range(0, len(ranks), every), [str(rank) for rank in ranks[::every]])
    axes.set_ylim(len(ranks) - 0.5, -0.5)
