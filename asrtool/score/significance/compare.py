"""Test whether two hypotheses of one test set differ by more than chance.

The tests are the bootstrap and the matched-pair test MAPSSWE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.score.formats.segments import ScoredSegment, read_segments
from asrtool.score.significance.bootstrap import CONFIDENCE, SEED, draw_rates, quantiles, sum_units, unit_of
from asrtool.score.significance.mapsswe import Mapsswe, mapsswe


@dataclass(frozen=True)
class Comparison:
    """Word error rates in percent of A and B, and their difference A - B in points."""

    num_segments: int
    unit: str  # what the samples draw: speaker, or segment where there is one speaker
    num_units: int
    wer_a: float
    wer_b: float
    difference: float
    interval: tuple[float, float]  # holds CONFIDENCE of the differences of the samples
    fraction_b_better: float  # of the samples
    mapsswe: Mapsswe

    def to_dict(self) -> dict[str, object]:
        """The form that --json prints."""
        return {**asdict(self), "mapsswe": self.mapsswe._asdict()}


def compare_scores(a: Path | str, b: Path | str, seed: int = SEED) -> Comparison:
    """Compare two folders that `asrtool score` wrote, or files in them.

    Raises AsrtoolError where a file is missing or malformed, and where the two are not scores of one reference.
    """
    return compare_segments(read_segments(a), read_segments(b), f"{a} and {b}", seed)


def compare_segments(a: Sequence[ScoredSegment], b: Sequence[ScoredSegment], what: str, seed: int = SEED) -> Comparison:
    """`compare_scores` of what was read; `what` names the two in errors."""
    _check_same_reference(a, b, what)
    unit = unit_of(a)
    errors, words = np.array([sum_units(side, unit) for side in (a, b)]).transpose(1, 0, 2)  # (2, num_units) each
    if not words.sum(axis=1).all():
        raise AsrtoolError(f"{what}: no reference words", "compare scores of a set that has some")
    wer_a, wer_b = 100 * errors.sum(axis=1) / words.sum(axis=1)
    differences = draw_differences(errors, words, seed)
    return Comparison(
        num_segments=len(a),
        unit=unit,
        num_units=errors.shape[1],
        wer_a=float(wer_a),
        wer_b=float(wer_b),
        difference=float(wer_a - wer_b),
        interval=quantiles(differences),
        fraction_b_better=float(np.mean(differences > 0)),
        mapsswe=mapsswe((one.outcomes, other.outcomes) for one, other in zip(a, b, strict=True)),
    )


def draw_differences(errors: np.ndarray, words: np.ndarray, seed: int) -> np.ndarray:
    """Draw differences of error rates in points, first row minus second."""
    first, second = draw_rates(errors, words, seed)
    return np.asarray(first - second)


def format_comparison(comparison: Comparison) -> str:
    """The comparison as text."""
    test, (low, high) = comparison.mapsswe, comparison.interval
    return (
        f"{comparison.num_segments} segments, {comparison.num_units} {comparison.unit}s\n"
        f"WER of A {comparison.wer_a:.2f} %, of B {comparison.wer_b:.2f} %, A - B {comparison.difference:+.2f} points\n"
        f"{CONFIDENCE:.0%} interval of A - B by bootstrap over {comparison.unit}s: {low:+.2f} to {high:+.2f};"
        f" B is better in {comparison.fraction_b_better:.1%} of the samples\n"
        f"matched pairs (MAPSSWE): {test.num_stretches} stretches, mean {test.mean:+.3f}, Z {test.z:+.3f},"
        f" p {test.p_value:.2g}\n"
    )


def _check_same_reference(a: Sequence[ScoredSegment], b: Sequence[ScoredSegment], what: str) -> None:
    hint = "compare scores of one test set with one stm and one GLM"
    if len(a) != len(b):
        raise AsrtoolError(f"{what}: different references, {len(a)} and {len(b)} segments", hint)
    for one, other in zip(a, b, strict=True):
        if one[:3] != other[:3]:
            raise AsrtoolError(
                f"{what}: different references, the first difference is segment {one.id}"
                f" ({one.reference.strip()!r} and {other.id} {other.reference.strip()!r})",
                hint,
            )
