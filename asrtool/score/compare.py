"""Whether two hypotheses of the same test set differ by more than chance.

The interval is that of M. Bisani and H. Ney, "Bootstrap estimates for confidence intervals in ASR performance
evaluation", ICASSP 2004: speakers are drawn with replacement, the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.score.mapsswe import Mapsswe, mapsswe
from asrtool.score.segments import ScoredSegment, read_segments

NUM_SAMPLES = 10_000
MAX_DRAWS = 1 << 20  # held at a time
CONFIDENCE = 0.95


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


def compare_scores(a: Path | str, b: Path | str, seed: int = 1) -> Comparison:
    """Compare two folders that `asrtool score` wrote, or files in them.

    Raises AsrtoolError where a file is missing or malformed, and where the two are not scores of one reference.
    """
    sides = read_segments(a), read_segments(b)
    _check_same_reference(*sides, f"{a} and {b}")
    unit = "speaker" if len({segment.speaker for segment in sides[0]}) > 1 else "segment"
    errors, words = np.array([_sum_units(side, unit) for side in sides]).transpose(1, 0, 2)  # (2, num_units) each
    if not words.sum(axis=1).all():
        raise AsrtoolError(f"{a} and {b}: no reference words", "compare scores of a set that has some")
    wer_a, wer_b = 100 * errors.sum(axis=1) / words.sum(axis=1)
    differences = draw_differences(errors, words, seed)
    low, high = np.quantile(differences, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Comparison(
        num_segments=len(sides[0]),
        unit=unit,
        num_units=errors.shape[1],
        wer_a=float(wer_a),
        wer_b=float(wer_b),
        difference=float(wer_a - wer_b),
        interval=(float(low), float(high)),
        fraction_b_better=float(np.mean(differences > 0)),
        mapsswe=mapsswe((one.outcomes, other.outcomes) for one, other in zip(*sides, strict=True)),
    )


def draw_differences(errors: np.ndarray, words: np.ndarray, seed: int) -> np.ndarray:
    """Differences of the error rates, first row less second, in NUM_SAMPLES samples of the units, in points.

    `errors` and `words` have shape (2, num_units). Samples without reference words are left out.
    """
    num_units = errors.shape[1]
    rng, probs = np.random.default_rng(seed), [1 / num_units] * num_units
    sums = []
    block = max(MAX_DRAWS // num_units, 1)  # samples at a time; the draws do not depend on it
    for start in range(0, NUM_SAMPLES, block):
        draws = rng.multinomial(num_units, probs, size=min(block, NUM_SAMPLES - start))
        sums.append(draws @ np.concatenate([errors, words]).T)
    drawn_errors, drawn_words = np.split(np.concatenate(sums), 2, axis=1)
    some = drawn_words.all(axis=1)
    rates = 100 * drawn_errors[some] / drawn_words[some]
    return np.asarray(rates[:, 0] - rates[:, 1])


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


def _sum_units(segments: Sequence[ScoredSegment], unit: str) -> tuple[list[int], list[int]]:
    """Errors and reference words of each unit."""
    sums: dict[str, list[int]] = {}
    for segment in segments:
        unit_sums = sums.setdefault(segment.speaker if unit == "speaker" else segment.id, [0, 0])
        unit_sums[0] += segment.num_errors
        unit_sums[1] += segment.num_words
    return [errors for errors, _ in sums.values()], [words for _, words in sums.values()]
