"""Figure of the word error rate on dev by language model weight, from tuning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.errors import AsrtoolError
from asrtool.report.figures.figure import LINES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curves = Mapping[str, Mapping[float, float]]  # method -> LM weight -> least WER in percent with it


def read_weights(path: Path) -> dict[str, dict[float, float]]:
    """Read a tuning.tsv; methods with one weight are left out.

    Raises AsrtoolError if it is missing or malformed.
    """
    curves: dict[str, dict[float, float]] = {}
    try:
        head, *rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
        for row in rows:
            tried = dict(zip(head, row, strict=True))
            if "-" not in (tried["lm_weight"], tried["wer_percent"]):
                weight, wer = float(tried["lm_weight"]), float(tried["wer_percent"])
                curve = curves.setdefault(tried["method"], {})
                curve[weight] = min(wer, curve.get(weight, wer))
    except FileNotFoundError as error:
        raise AsrtoolError(f"{path} is missing", "run stage decode first") from error
    except (ValueError, KeyError) as error:
        raise AsrtoolError(f"{path}: no table of tuning: {error}", "run stage decode again with --force") from error
    return {method: dict(sorted(curve.items())) for method, curve in curves.items() if len(curve) > 1}


def draw_weights(figure: Figure, curves: Curves) -> None:
    """A line a method, and its lowest point."""
    axes = figure.subplots()
    for (method, curve), colour in zip(curves.items(), LINES * len(curves), strict=False):
        axes.plot(list(curve), list(curve.values()), ".-", color=colour, label=method)
        best = lowest(curve)
        axes.plot([best], [curve[best]], "o", color=colour, markersize=9, markerfacecolor="none")
    axes.set(xlabel="LM weight", ylabel="word error rate on dev, %")
    axes.legend()


def describe_weights(curves: Curves) -> str:
    """Describe in words the best weight of each method."""
    texts = [
        f"{method}: {curve[lowest(curve)]:.2f} % at {lowest(curve):g}, the lowest of"
        f" {', '.join(f'{wer:.2f} at {weight:g}' for weight, wer in curve.items())}"
        for method, curve in curves.items()
    ]
    return f"Word error rate on dev over the weight of the language model. {'; '.join(texts)}."


def lowest(curve: Mapping[float, float]) -> float:
    """The weight with the lowest rate, of equals the least."""
    return min(curve, key=lambda weight: (curve[weight], weight))
