"""Word error rates with intervals, as text and figures."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.errors import AsrtoolError
from asrtool.log import plural
from asrtool.report.figures.figure import add_legend
from asrtool.report.markdown import Table
from asrtool.score.result import Counts, Result
from asrtool.score.significance import CONFIDENCE, NUM_SAMPLES, Interval, wer_interval
from asrtool.score.tables import format_rate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW_WORDS = 1000  # with fewer, a word is more than the tenth of a point that is shown
FEW_UNITS = 20  # with fewer, intervals hold the true rate too seldom (docs/guide/report.md)

_HEAD = ("hours of training", "system", "WER %", "source")
PUBLISHED = {  # test set -> a few rates on all of it
    "Hub5'00": Table(
        _HEAD,
        (
            ("300", "Kaldi, BLSTM by cross-entropy", "Switchboard 10.2, CallHome 19.4", "egs/swbd/s5c/RESULTS"),
            ("300", "IBM, LSTM with attention", "Switchboard 6.4, CallHome 12.5", "arXiv 2001.07263"),
            ("2,000", "IBM, hybrid BLSTM by AD-PSGD", "Switchboard 7.6, CallHome 13.1", "arXiv 1904.04956"),
            ("2,000", "IBM, LSTM with attention", "Switchboard 4.7, CallHome 7.8", "arXiv 2001.07263"),
        ),
        text=(1, 2, 3),
    ),
    "RT-03": Table(
        _HEAD,
        (
            ("300", "Kaldi, chain TDNN-F", "15.2", "egs/swbd/s5c/local/chain/tuning"),
            ("2,000", "Kaldi, chain TDNN-OPGRU", "10.7", "egs/fisher_swbd/s5"),
        ),
        text=(1, 2, 3),
    ),
}


def format_wer(counts: Counts) -> str:
    """Format the error rate in percent, or a dash without reference words."""
    return format_rate(counts.wer, 1)


@functools.cache
def interval_of(score: Result) -> Interval | None:
    """Return the interval of the word error rate; None without reference words."""
    return wer_interval(score.segments)


def format_interval(score: Result) -> str:
    """Format the ends of the interval in percent, or a dash."""
    interval = interval_of(score)
    return f"{interval.low:.1f} to {interval.high:.1f}" if interval else "-"


def describe_interval(score: Result) -> str:
    """Describe the scorer and the intervals of `score`, for below a table."""
    scored, interval = f"Scored {score.scored}.", interval_of(score)
    if interval is None:
        return scored
    drawn = f"{NUM_SAMPLES:,} bootstrap samples of the {plural(interval.num_units, interval.unit)}"
    return f"{scored} Intervals hold {100 * CONFIDENCE:g} % of {drawn} (Bisani and Ney 2004)."


def small_set_warning(score: Result) -> str:
    """Return the warning about the rate of a small set; empty for a large one."""
    words, segments, speakers = score.overall.num_words, len(score.segments), len(score.speakers)
    reasons = []
    if 0 < words < FEW_WORDS:
        reasons.append(f"one word is {100 / words:.1f} points")
    if 1 < speakers < FEW_UNITS or segments < FEW_UNITS:
        reasons.append("so few make intervals too narrow")
    elif speakers == 1:
        reasons.append("of other speakers this says nothing")
    if not reasons:
        return ""
    sizes = f"{plural(segments, 'segment')} of {plural(speakers, 'speaker')} with {plural(words, 'word')}"
    return f"**Caution**, a small set: {sizes}; {', and '.join(reasons)}."


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
    """Draw a line a method, and its lowest point."""
    axes = figure.subplots()
    for method, curve in curves.items():
        (line,) = axes.plot(list(curve), list(curve.values()), marker=".", label=method)
        best = lowest(curve)
        axes.plot([best], [curve[best]], "o", color=line.get_color(), markersize=9, markerfacecolor="none")
    axes.set(xlabel="LM weight", ylabel="word error rate on dev, %")
    add_legend(figure)


def describe_weights(curves: Curves) -> str:
    """Describe in words the best weight of each method."""
    texts = [
        f"{method}: {curve[lowest(curve)]:.2f} % at {lowest(curve):g}, the lowest of"
        f" {', '.join(f'{wer:.2f} at {weight:g}' for weight, wer in curve.items())}"
        for method, curve in curves.items()
    ]
    return f"Word error rate on dev over the weight of the language model. {'; '.join(texts)}."


def lowest(curve: Mapping[float, float]) -> float:
    """Return the weight with the lowest rate; the smallest if several are equal."""
    return min(curve, key=lambda weight: (curve[weight], weight))
