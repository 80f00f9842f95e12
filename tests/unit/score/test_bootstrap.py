"""Intervals of word error rates: against exact enumeration, and what is drawn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from asrtool.score.result import Alignment, Segment
from asrtool.score.significance import draw_rates, wer_interval


def segments(outcomes: list[str], speakers: str) -> list[Segment]:
    return [
        Segment(f"u{n}", speaker, (), "", Alignment((), text))
        for n, (text, speaker) in enumerate(zip(outcomes, speakers, strict=True))
    ]


def test_the_interval_is_that_of_all_draws_of_speakers_with_replacement() -> None:
    found = wer_interval(segments(["CCCC", "CSCI", "SSCCC", "CCCCCCDC"], "aabc"))
    assert found is not None
    errors, words = np.array([2, 2, 1]), np.array([7, 5, 8])
    exact = [100 * errors[list(d)].sum() / words[list(d)].sum() for d in itertools.product(range(3), repeat=3)]
    assert (found.unit, found.num_units) == ("speaker", 3)
    assert found[:2] == pytest.approx(np.quantile(exact, [0.025, 0.975], method="inverted_cdf"))


def test_segments_are_drawn_of_one_speaker() -> None:
    found = wer_interval(segments(["CCCC", "CSCI", "SSCCC"], "aaa"))
    assert found is not None
    assert (found.unit, found.num_units) == ("segment", 3)


def test_speakers_who_are_alike_leave_nothing_to_chance() -> None:
    found = wer_interval(segments(["CCCS"] * 6, "abcabc"))
    assert found is not None
    assert found[:2] == (25.0, 25.0)


def test_without_reference_words_there_is_no_interval() -> None:
    assert wer_interval(segments(["", "II"], "ab")) is None
    some = wer_interval(segments(["", "II", "CS"], "abc"))  # samples without words are left out
    assert some is not None
    assert some[:2] == (50.0, 250.0)


def test_an_interval_holds_the_rate_of_enough_speakers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        rates = rng.beta(4, 36, size=(1, 60))  # speakers differ; their mean is 10 %
        words = rng.integers(50, 150, size=rates.shape)
        low, high = np.quantile(draw_rates(rng.binomial(words, rates), words, 1), [0.025, 0.975])
        hits += low <= 10 <= high
    assert 0.88 < hits / 200 <= 1
