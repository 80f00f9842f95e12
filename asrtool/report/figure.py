"""What all figures have in common. matplotlib is imported only where a figure is made; no display is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = TypeVar("Drawn")
# Colours of Okabe and Ito, which people of every colour vision tell apart.
BLUE, ORANGE, PINK, GREEN, GREY, DARK = "#0072B2", "#E69F00", "#CC79A7", "#009E73", "#DDDDDD", "#555555"
# What a step spends its time on, in the order in which it does.
PARTS = {"data": GREEN, "compute": BLUE, "wait": PINK, "comm": ORANGE}
BETWEEN = "between steps"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "asrtool",  # the names in the file depend on the content alone
}


def save_figure(draw: Callable[[Figure, Drawn], None], run: Drawn, path: Path) -> None:
    """Write what `draw` puts on a figure of `run`, a training or other data, to `path`, in the format of its suffix.

    The same data gives the same bytes of SVG with the same matplotlib.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        draw(figure, run)
        figure.savefig(path, dpi=100, metadata={"Date": None} if path.suffix == ".svg" else None)
