"""Base of all figures; matplotlib is imported only when one is drawn."""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asrtool.errors import AsrtoolError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw = Callable[["Figure"], None]

# Colours of Okabe and Ito, distinct for every colour vision.
BLUE, ORANGE, PINK, GREEN, GREY, DARK = "#0072B2", "#E69F00", "#CC79A7", "#009E73", "#DDDDDD", "#555555"
COLOURS = {
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    PINK: "var(--pink)",
    GREEN: "var(--green)",
    GREY: "var(--grey)",
    DARK: "var(--dark)",
}
LINES = (BLUE, ORANGE, GREEN, PINK, DARK)  # colours of curves in a plot, then repeated with other styles
# Parts of a step's time, in their order.
PARTS = {"data": GREEN, "compute": BLUE, "wait": PINK, "comm": ORANGE}
BETWEEN = "between steps"
WIDE_INCHES, NARROW_INCHES, HEIGHT_INCHES = 9, 4.4, 3.2
MAX_NAME = 36  # letters
LETTERS_PER_INCH, LETTERS_OF_LINE, LINE_INCHES = 15, 8, 0.18  # sizes of a legend, whose entries begin with a line
SUFFIXES = (".svg", ".png", ".pdf")  # suffixes of files that a user names
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.handlelength": 3.0,  # for dashes
    "axes.prop_cycle": f"cycler(linestyle=['-', '--', ':']) * cycler(color={list(LINES)})",
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "asrtool",  # the names in the file depend on the content alone
}
TRANSPARENT = {"figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none"}


def check_suffix(path: Path, example: str) -> None:
    """Raise AsrtoolError if --plot names no format of a figure."""
    if path.suffix not in SUFFIXES:
        what = f"--plot {path}: expected a name that ends with {', '.join(SUFFIXES)}"
        raise AsrtoolError(what, f"for example {example}")


def save_figure(draw: Draw, path: Path) -> None:
    """Write what `draw` puts on a figure to `path`, in the format of its suffix.

    The same content gives the same bytes of SVG with the same matplotlib.
    """
    with _drawn(draw, WIDE_INCHES, STYLE) as figure:
        figure.savefig(path, dpi=100, metadata={"Date": None} if path.suffix == ".svg" else None)


def panels(figure: Figure, num: int, share_y: bool = False) -> list[Axes]:
    """Return `num` axes side by side, or stacked on a narrow figure."""
    if figure.get_figwidth() >= WIDE_INCHES:
        return list(figure.subplots(1, num, squeeze=False, sharey=share_y).flat)
    figure.set_figheight(figure.get_figheight() * (1 + 0.8 * (num - 1)))
    return list(figure.subplots(num, 1, squeeze=False, sharey=share_y).flat)


def stack_bars(axes: Axes, colours: Mapping[str, str], rows: Sequence[Mapping[str, float]], what: str) -> None:
    """Draw the fractions of each row as a stacked bar, by the names of `colours`."""
    left = np.zeros(len(rows))
    for name, colour in colours.items():
        widths = np.array([100 * row[name] for row in rows])
        axes.barh(np.arange(len(rows)), widths, left=left, color=colour, label=name)
        left += widths
    axes.set(xlabel=f"percent of {what}", xlim=(0, 100))


def add_legend(figure: Figure) -> None:
    """Put the legend of the first axes below the figure, where it hides no line."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    longest = max(map(len, labels), default=0) + LETTERS_OF_LINE
    num_columns = max(1, min(len(labels), int(figure.get_figwidth() * LETTERS_PER_INCH / longest)))
    figure.set_figheight(figure.get_figheight() + LINE_INCHES * math.ceil(len(labels) / num_columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=num_columns)


def short(name: str) -> str:
    """Shorten a name for a figure, and escape formulas and hidden labels."""
    name = name if len(name) <= MAX_NAME else f"...{name[3 - MAX_NAME :]}"
    return f" {name}" if name.startswith("_") else name.replace("$", r"\$")


def narrow_svg(draw: Draw, name: str) -> str:
    """Return a figure as an ``svg`` element for telephones.

    It uses the text's colour, CSS variables for COLOURS, and identifiers that begin with `name`, unique on the page.
    """
    file = io.StringIO()
    with _drawn(draw, NARROW_INCHES, {**STYLE, **TRANSPARENT}) as figure:
        figure.savefig(file, format="svg", metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:xmlns(?::\w+)?|version|width|height)="[^"]*"', "", svg.partition(">")[0]) + svg[svg.index(">") :]
    svg = re.sub(r"font-family: [^;\"]*(; )?", "", svg)
    svg = re.sub(r"font: ([^;\"]*?)([\d.]+px) [^;\"]*", r"font: \1\2 sans-serif", svg)  # output of an older matplotlib
    for colour, variable in {"#000000": "currentColor", **COLOURS}.items():
        svg = re.sub(f"{colour}\\b", variable, svg, flags=re.IGNORECASE)
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    return re.sub(r"\n\s*", "\n", svg).strip()


@contextlib.contextmanager
def _drawn(draw: Draw, width_inches: float, style: dict[Any, Any]) -> Iterator[Figure]:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width_inches, HEIGHT_INCHES), layout="constrained")
        draw(figure)
        yield figure
