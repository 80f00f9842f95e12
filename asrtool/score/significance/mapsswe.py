"""Matched-pair sentence-segment word error test of two scores of one reference.

L. Gillick and S. J. Cox, "Some statistical issues in the comparison of speech recognition algorithms", ICASSP 1989;
as ``sc_stats -t mapsswe`` of SCTK does it: a stretch of errors ends where NUM_GOOD words in a row are correct in
both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

NUM_GOOD = 2


class Mapsswe(NamedTuple):
    """Mean and standard deviation of error differences per stretch, and the test.

    A difference is the errors of the first minus the errors of the second.
    """

    num_stretches: int
    mean: float
    std_dev: float
    z: float
    p_value: float  # two-sided


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
    """Errors of both in each stretch of a segment.

    Walks over the reference words in both at once; as in SCTK, nothing brings the two together again where they took
    alternatives of other lengths.
    """
    stretches = []
    a = b = 0
    last = 0, 0  # the last word that is correct in both and not behind the errors at hand
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
