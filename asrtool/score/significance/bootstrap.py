"""Bootstrap samples of a scored test set, for intervals of error rates.

M. Bisani and H. Ney, "Bootstrap estimates for confidence intervals in ASR performance evaluation", ICASSP 2004.
Speakers are drawn with replacement, since the errors of one depend on one another; segments if there is one speaker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asrtool.score.formats.segments import ScoredSegment

NUM_SAMPLES = 10_000
MAX_DRAWS = 1 << 20  # held at a time
CONFIDENCE = 0.95
SEED = 1


class Interval(NamedTuple):
    """Interval of an error rate in percent that holds CONFIDENCE of the samples."""

    low: float
    high: float
    unit: str  # what was drawn, speaker or segment
    num_units: int


def wer_interval(segments: Sequence[ScoredSegment], seed: int = SEED) -> Interval | None:
    """Return the interval of the word error rate; None without reference words."""
    if not any(segment.num_words for segment in segments):
        return None
    unit = unit_of(segments)
    errors, words = sum_units(segments, unit)
    (rates,) = draw_rates(np.array([errors]), np.array([words]), seed)
    return Interval(*quantiles(rates), unit, len(errors))


def unit_of(segments: Sequence[ScoredSegment]) -> str:
    """Return the unit to draw: speaker, or segment if there is one speaker."""
    return "speaker" if len({segment.speaker for segment in segments}) > 1 else "segment"


def sum_units(segments: Sequence[ScoredSegment], unit: str) -> tuple[list[int], list[int]]:
    """Errors and reference words of each unit, in the order in which these appear."""
    sums: dict[str, list[int]] = {}
    for segment in segments:
        unit_sums = sums.setdefault(segment.speaker if unit == "speaker" else segment.id, [0, 0])
        unit_sums[0] += segment.num_errors
        unit_sums[1] += segment.num_words
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
    """The ends of what holds CONFIDENCE of the samples."""
    low, high = np.quantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
