"""Figure of simulated trainings: their duration, and learners' time."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asrtool.files import writing
from asrtool.report.figures.figure import BLUE, DARK, GREEN, GREY, ORANGE, PINK, panels, save_figure, short, stack_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"compute": BLUE, "exchange": ORANGE, "wait": PINK, "data": GREEN, "between": GREY}
ROW_INCHES = 0.24
UNITS = {"days": 24.0, "hours": 1.0, "minutes": 1 / 60, "seconds": 1 / 3600}  # in hours
NO_MODEL = "none"  # the strategy whose learners train a model each

Rows = Sequence[Mapping[str, Any]]


def draw_rows(rows: Rows, title: str, path: Path) -> None:
    """Draw `rows`, as asrtool.predict.simulate.compare gives them for --json."""
    with writing(path):
        save_figure(functools.partial(_draw, rows=rows, title=title), path)


def _draw(figure: Figure, rows: Rows, title: str) -> None:
    numbers = sorted({row["num_learners"] for row in rows})
    longest = max(max(row["hours_interval"]) for row in rows)
    unit = next((unit for unit, hours in UNITS.items() if longest >= 2 * hours), "seconds")
    figure.set_figheight(1.8 + ROW_INCHES * len(rows))
    figure.suptitle(title, fontsize="medium")
    times, fractions = panels(figure, 2)
    if len(numbers) > 1:
        _draw_curves(times, rows, unit)
    else:
        _draw_bars(times, rows, unit)
    stack_bars(fractions, COLOURS, [row["fractions"] for row in rows], "the learners' time")
    _name_rows(fractions, rows)
    figure.legend(*fractions.get_legend_handles_labels(), loc="outside lower center", ncols=len(COLOURS))


def _draw_bars(axes: Axes, rows: Rows, unit: str) -> None:
    intervals_R2 = np.array([row["hours_interval"] for row in rows]) / UNITS[unit]
    times = np.array([row["hours"] for row in rows]) / UNITS[unit]
    has_ends = (intervals_R2[:, 0] < intervals_R2[:, 1]).any()
    colours = [GREY if row["strategy"] == NO_MODEL else DARK for row in rows]
    ends = abs(intervals_R2.T - times) if has_ends else None
    axes.barh(np.arange(len(rows)), times, color=colours, xerr=ends, ecolor=ORANGE)
    _name_rows(axes, rows)
    axes.set(xlabel=unit)


def _draw_curves(axes: Axes, rows: Rows, unit: str) -> None:
    """Draw times by learners, a curve a strategy, and crosses for published values."""
    for name in dict.fromkeys(row["strategy"] for row in rows):
        own = sorted((row for row in rows if row["strategy"] == name), key=lambda row: int(row["num_learners"]))
        x = [row["num_learners"] for row in own]
        times = [row["hours"] / UNITS[unit] for row in own]
        look: dict[str, Any] = {"color": "black", "linestyle": "-.", "linewidth": 1} if name == NO_MODEL else {}
        (line,) = axes.plot(x, times, marker=".", label=_name(name), **look)
        low, high = np.array([row["hours_interval"] for row in own]).T / UNITS[unit]
        axes.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        known = [(row["num_learners"], row["published_hours"] / UNITS[unit]) for row in own if row["published_hours"]]
        for place in known:
            axes.plot(*place, "x", color=line.get_color())
    has_published = any(row["published_hours"] for row in rows)
    axes.set(xscale="log", yscale="log", xlabel="learners", ylabel=f"{unit} (x: published)" if has_published else unit)
    numbers = sorted({row["num_learners"] for row in rows})
    axes.set_xticks(numbers, list(map(str, numbers)), minor=False)
    axes.minorticks_off()
    from matplotlib.ticker import LogLocator

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def _name(strategy: str) -> str:
    return "none (no joint model)" if strategy == NO_MODEL else short(strategy)


def _name_rows(axes: Axes, rows: Rows) -> None:
    several = len({row["num_learners"] for row in rows}) > 1
    names = [_name(row["strategy"]) + (f", {row['num_learners']}" if several else "") for row in rows]
    axes.set_yticks(np.arange(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.5)
