"""Figures over the whole of a training: losses, consensus distance and drift."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from asrtool.report.figures.figure import BLUE, ORANGE, panels
from asrtool.report.training import Floats, TrainingRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS = 200  # of a curve
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
    by_samples.legend()


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
