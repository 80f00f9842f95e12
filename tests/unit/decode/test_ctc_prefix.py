"""Probabilities of beginnings against all paths, one after another."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from asrtool.decode.search.attention import BLANK, PrefixScorer


def log_posteriors(num_rows: int, num_tokens: int, seed: int) -> np.ndarray:
    values_TV = np.random.default_rng(seed).standard_normal((num_rows, num_tokens))
    log_probs_TV: np.ndarray = values_TV - np.log(np.exp(values_TV).sum(axis=1, keepdims=True))
    return log_probs_TV


def all_sequences(log_probs_TV: np.ndarray) -> dict[tuple[int, ...], float]:
    """P of each sequence of tokens, summed over its paths."""
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(log_probs_TV.shape[1]), repeat=len(log_probs_TV)):
        tokens = tuple(token for token, _ in itertools.groupby(path) if token != BLANK)
        log_prob = log_probs_TV[np.arange(len(path)), path].sum()
        found[tokens] = found.get(tokens, 0.0) + float(np.exp(log_prob))
    return found


@given(st.integers(1, 5), st.lists(st.integers(1, 2), max_size=4), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_a_beginning_has_all_sequences_that_begin_so(num_rows: int, tokens: list[int], seed: int) -> None:
    log_probs_TV = log_posteriors(num_rows, 3, seed)
    of_all = all_sequences(log_probs_TV)
    scorer = PrefixScorer(log_probs_TV)
    state, last = scorer.start(), BLANK
    for length in range(len(tokens) + 1):
        prefix = tuple(tokens[:length])
        np.testing.assert_allclose(np.exp(scorer.end(state)), [of_all.get(prefix, 0.0)], atol=1e-12)
        begins_1K, states = scorer.extend(state, np.array([last]), np.array([[1, 2]]))
        for k, token in enumerate((1, 2)):
            longer = (*prefix, token)
            expected = sum(prob for found, prob in of_all.items() if found[: length + 1] == longer)
            assert np.exp(begins_1K[0, k]) == pytest.approx(expected, abs=1e-12)
        if length < len(tokens):
            state, last = states.take(np.array([tokens[length] - 1])), tokens[length]


def test_long_utterances_lose_nothing() -> None:
    """Blank and one token, as probable as each other: of 2 ** T paths so many have exactly one token as begin once."""
    num_rows = 1000
    scorer = PrefixScorer(np.full((num_rows, 2), np.log(0.5)))
    begins_1K, states = scorer.extend(scorer.start(), np.array([BLANK]), np.array([[1]]))
    assert begins_1K[0, 0] == pytest.approx(0.0, abs=1e-12)  # all but the path of blanks
    runs = num_rows * (num_rows + 1) / 2  # where one run of the token begins and ends
    assert scorer.end(states)[0] == pytest.approx(np.log(runs) - num_rows * np.log(2.0))
