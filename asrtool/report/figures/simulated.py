"""A figure of simulated trainings: how long each takes, and what its learners spend their time on."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asrtool.files import writing
from asrtool.report.figures.figure import BLUE, DARK, GREEN, GREY, LINES, ORANGE, PINK, panels, save_figure, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"compute": BLUE, "exchange": ORANGE, "wait": PINK, "data": GREEN, "between": GREY}
ROW_INCHES = 0.24

Rows = Sequence[Mapping[str, Any]]


def draw_rows(rows: Rows, path: Path) -> None:
    """Write a figure of `rows`, each as asrtool.predict.simulate.simulate gives it for --json, to `path`."""
    with writing(path):
        save_figure(functools.partial(_draw, rows=rows), path)


def _draw(figure: Figure, rows: Rows) -> None:
    numbers = sorted({row["num_learners"] for row in rows})
    figure.set_figheight(1.6 + ROW_INCHES * len(rows))
    hours, fractions = panels(figure, 2)
    if len(numbers) > 1:
        _draw_curves(hours, rows)
    else:
        _draw_bars(hours, rows)
    _draw_fractions(fractions, rows)
    figure.legend(*fractions.get_legend_handles_labels(), loc="outside upper center", ncols=len(COLOURS))


def _draw_bars(axes: Axes, rows: Rows) -> None:
    places = np.arange(len(rows))
    intervals_R2 = np.array([row["hours_interval"] for row in rows])
    hours = np.array([row["hours"] for row in rows])
    has_ends = (intervals_R2[:, 0] < intervals_R2[:, 1]).any()
    axes.barh(places, hours, color=DARK, xerr=abs(intervals_R2.T - hours) if has_ends else None, ecolor=ORANGE)
    _name_rows(axes, rows)
    axes.set(xlabel="hours")


def _draw_curves(axes: Axes, rows: Rows) -> None:
    """Hours over learners, a curve a strategy, and crosses for what others have measured."""
    for place, name in enumerate(dict.fromkeys(row["strategy"] for row in rows)):
        own = sorted((row for row in rows if row["strategy"] == name), key=lambda row: int(row["num_learners"]))
        x, colour = [row["num_learners"] for row in own], LINES[place % len(LINES)]
        style = ("-", "--", ":")[place // len(LINES) % 3]
        axes.plot(x, [row["hours"] for row in own], style, marker=".", color=colour, label=short(name))
        low, high = zip(*(row["hours_interval"] for row in own), strict=True)
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        known = [row for row in own if row["published_hours"]]
        axes.plot([row["num_learners"] for row in known], [row["published_hours"] for row in known], "x", color=colour)
    axes.set(xscale="log", yscale="log", xlabel="learners", ylabel="hours (x: published)")
    numbers = sorted({row["num_learners"] for row in rows})
    axes.set_xticks(numbers, list(map(str, numbers)), minor=False)
    axes.minorticks_off()
    from matplotlib.ticker import LogLocator

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(fontsize=7)


def _draw_fractions(axes: Axes, rows: Rows) -> None:
    places, left = np.arange(len(rows)), np.zeros(len(rows))
    for part, colour in COLOURS.items():
        widths = np.array([100 * row["fractions"][part] for row in rows])
        axes.barh(places, widths, left=left, color=colour, label=part)
        left += widths
    _name_rows(axes, rows)
    axes.set(xlabel="percent of the learners' time", xlim=(0, 100))


def _name_rows(axes: Axes, rows: Rows) -> None:
    several = len({row["num_learners"] for row in rows}) > 1
    names = [short(row["strategy"]) + (f", {row['num_learners']}" if several else "") for row in rows]
    axes.set_yticks(np.arange(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.5)
