"""Intervals of error rates, and tests for a difference between two scores.

- Bootstrap: M. Bisani and H. Ney, "Bootstrap estimates for confidence intervals in ASR performance evaluation",
  ICASSP 2004. Speakers are drawn with replacement, since the errors of one depend on one another; segments if there
  is one speaker.
- MAPSSWE, the matched-pair sentence-segment word error test: L. Gillick and S. J. Cox, "Some statistical issues in
  the comparison of speech recognition algorithms", ICASSP 1989, as ``sc_stats -t mapsswe`` of SCTK does it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.score.result import Segment
from asrtool.score.segments import read_segments

NUM_SAMPLES = 10_000
MAX_DRAWS = 1 << 20  # held at a time
CONFIDENCE = 0.95
SEED = 1
FEW_STRETCHES = 50  # with fewer, the mean of MAPSSWE is too far from normal for a p-value
MIN_P = 0.001  # smaller p-values are printed as "< 0.001"
NUM_GOOD = 2  # words in a row that are correct in both scores end a stretch of errors of MAPSSWE


class Interval(NamedTuple):
    """Interval of an error rate in percent that holds CONFIDENCE of the samples."""

    low: float
    high: float
    unit: str  # drawn unit: speaker or segment
    num_units: int


def wer_interval(segments: Sequence[Segment]) -> Interval | None:
    """Return the interval of the word error rate; None without reference words."""
    if not any(segment.alignment.counts.num_words for segment in segments):
        return None
    unit = unit_of(segments)
    errors, words = sum_units(segments, unit)
    (rates,) = draw_rates(np.array([errors]), np.array([words]), SEED)
    return Interval(*quantiles(rates), unit, len(errors))


def unit_of(segments: Sequence[Segment]) -> str:
    """Return the unit to draw: speaker, or segment if there is one speaker."""
    return "speaker" if len({segment.speaker for segment in segments}) > 1 else "segment"


def sum_units(segments: Sequence[Segment], unit: str) -> tuple[list[int], list[int]]:
    """Return errors and reference words of units, in order of appearance."""
    sums: dict[str, list[int]] = {}
    for segment in segments:
        unit_sums = sums.setdefault(segment.speaker if unit == "speaker" else segment.id, [0, 0])
        unit_sums[0] += segment.alignment.counts.err
        unit_sums[1] += segment.alignment.counts.num_words
    return [errors for errors, _ in sums.values()], [words for _, words in sums.values()]


def draw_rates(errors: np.ndarray, words: np.ndarray, seed: int) -> np.ndarray:
    """Draw NUM_SAMPLES samples; return error rates in percent, (systems, samples).

    `errors` and `words` have shape (systems, units). All systems get the same samples. Samples without reference
    words are left out.
    """
    num_units = errors.shape[1]
    rng = np.random.default_rng(seed)
    sums = []
    block = max(MAX_DRAWS // num_units, 1)  # samples at a time; the draws do not depend on it
    for start in range(0, NUM_SAMPLES, block):
        draws = rng.integers(num_units, size=(min(block, NUM_SAMPLES - start), num_units), dtype=np.int32)
        sums.append([counts[draws].sum(axis=1) for counts in (*errors, *words)])
    drawn_errors, drawn_words = np.split(np.concatenate(sums, axis=1), 2)
    some = drawn_words.all(axis=0)
    return np.asarray(100 * drawn_errors[:, some] / drawn_words[:, some])


def quantiles(samples: np.ndarray) -> tuple[float, float]:
    """Return the ends of the interval with CONFIDENCE of the samples."""
    low, high = np.quantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


class Mapsswe(NamedTuple):
    """Mean and standard deviation of error differences per stretch, and the test.

    A difference is the errors of the first minus the errors of the second.
    """

    num_stretches: int
    mean: float
    std_dev: float
    z: float
    p_value: float  # two-sided

    @property
    def p_text(self) -> str:
        """Reliable digits of the p-value; a dash for few stretches."""
        if self.num_stretches < FEW_STRETCHES:
            return "-"
        return f"< {MIN_P:g}" if self.p_value < MIN_P else f"{self.p_value:.2g}"


def mapsswe(pairs: Iterable[tuple[str, str]]) -> Mapsswe:
    """Test whether two scores differ, from the outcomes of each segment in both.

    Outcomes are letters C, S, D, I. Z is 0 if all differences are equal, as in SCTK.
    """
    differences = [one - two for outcomes in pairs for one, two in count_stretches(*outcomes)]
    if not differences:
        return Mapsswe(0, 0.0, 0.0, 0.0, 1.0)
    num = len(differences)
    mean = sum(differences) / num
    squares = sum((difference - mean) ** 2 for difference in differences)
    std_dev = math.sqrt(squares / (num - 1)) if squares else 0.0
    z = mean / (std_dev / math.sqrt(num)) if squares else 0.0
    return Mapsswe(num, mean, std_dev, z, math.erfc(abs(z) / math.sqrt(2)))


def count_stretches(one: str, two: str) -> list[tuple[int, int]]:
    """Return errors of both systems in each stretch of a segment.

    Walks over the reference words in both at once; as in SCTK, nothing brings the two together again where they took
    alternatives of other lengths.
    """
    stretches = []
    a = b = 0
    last = 0, 0  # the last word that is correct in both and not after the current errors
    num_good: int | None = None  # in a row since the last error; None outside a stretch
    while a < len(one):
        next_a, next_b = _skip_insertions(one, a), _skip_insertions(two, b)
        if (next_a, next_b) != (a, b):
            num_good = 0
        a, b = next_a, next_b
        correct = one[a : a + 1] == two[b : b + 1] == "C"
        if num_good is None:
            last = (a, b) if correct else last
            num_good = None if correct else 0
        else:
            num_good = num_good + 1 if correct else 0
            if num_good == NUM_GOOD:
                stretches.append((_num_errors(one, last[0], a + 1), _num_errors(two, last[1], b + 1)))
                last, num_good = (a, b), None
        a, b = min(a + 1, len(one)), min(b + 1, len(two))
    if num_good is not None or b < len(two):
        stretches.append((_num_errors(one, last[0], len(one)), _num_errors(two, last[1], len(two))))
    return [errors for errors in stretches if errors != (0, 0)]


def _skip_insertions(outcomes: str, position: int) -> int:
    while outcomes[position : position + 1] == "I":
        position += 1
    return position


def _num_errors(outcomes: str, last_good: int, stop: int) -> int:
    part = outcomes[max(last_good - NUM_GOOD + 1, 0) : stop]
    return len(part) - part.count("C")


@dataclass(frozen=True)
class Comparison:
    """Word error rates in percent of A and B, and their difference A - B in points."""

    num_segments: int
    unit: str  # drawn by the samples: speaker, or segment if there is one speaker
    num_units: int
    wer_a: float
    wer_b: float
    difference: float
    interval: tuple[float, float]  # holds CONFIDENCE of the differences of the samples
    fraction_b_better: float  # fraction of the samples
    mapsswe: Mapsswe

    def to_dict(self) -> dict[str, object]:
        """Return the output of --json."""
        return {**asdict(self), "mapsswe": self.mapsswe._asdict()}


def compare_scores(a: Path | str, b: Path | str, seed: int = SEED) -> Comparison:
    """Compare two folders that `asrtool score` wrote, or files in them.

    Raises AsrtoolError if a file is missing or malformed, and if the two are not scores of one reference.
    """
    return compare_segments(read_segments(a), read_segments(b), f"{a} and {b}", seed)


def compare_segments(a: Sequence[Segment], b: Sequence[Segment], what: str, seed: int = SEED) -> Comparison:
    """Return `compare_scores` of segments; `what` names both in errors."""
    _check_same_reference(a, b, what)
    unit = unit_of(a)
    errors, words = np.array([sum_units(side, unit) for side in (a, b)]).transpose(1, 0, 2)  # (2, num_units) each
    if not words.sum(axis=1).all():
        raise AsrtoolError(f"{what}: no reference words", "compare scores of a set that has some")
    wer_a, wer_b = 100 * errors.sum(axis=1) / words.sum(axis=1)
    rates_a, rates_b = draw_rates(errors, words, seed)
    differences = rates_a - rates_b
    return Comparison(
        num_segments=len(a),
        unit=unit,
        num_units=errors.shape[1],
        wer_a=float(wer_a),
        wer_b=float(wer_b),
        difference=float(wer_a - wer_b),
        interval=quantiles(differences),
        fraction_b_better=float(np.mean(differences > 0)),
        mapsswe=mapsswe((one.alignment.outcomes, other.alignment.outcomes) for one, other in zip(a, b, strict=True)),
    )


def format_comparison(comparison: Comparison) -> str:
    """Format a comparison."""
    test, (low, high) = comparison.mapsswe, comparison.interval
    few = f", since fewer than {FEW_STRETCHES} stretches say nothing" if test.num_stretches < FEW_STRETCHES else ""
    return (
        f"{comparison.num_segments} segments, {comparison.num_units} {comparison.unit}s\n"
        f"WER of A {comparison.wer_a:.2f} %, of B {comparison.wer_b:.2f} %, A - B {comparison.difference:+.2f} points\n"
        f"{CONFIDENCE:.0%} interval of A - B by bootstrap over {comparison.unit}s: {low:+.2f} to {high:+.2f};"
        f" B is better in {comparison.fraction_b_better:.1%} of the samples\n"
        f"matched pairs (MAPSSWE): {test.num_stretches} stretches, mean {test.mean:+.3f}, Z {test.z:+.3f},"
        f" p {test.p_text}{few}\n"
    )


def _check_same_reference(a: Sequence[Segment], b: Sequence[Segment], what: str) -> None:
    hint = "compare scores of one test set with one stm and one GLM"
    if len(a) != len(b):
        raise AsrtoolError(f"{what}: different references, {len(a)} and {len(b)} segments", hint)
    for one, other in zip(a, b, strict=True):
        if (one.id, one.speaker, one.reference) != (other.id, other.speaker, other.reference):
            raise AsrtoolError(
                f"{what}: different references, the first difference is segment {one.id}"
                f" ({one.reference.strip()!r} and {other.id} {other.reference.strip()!r})",
                hint,
            )
