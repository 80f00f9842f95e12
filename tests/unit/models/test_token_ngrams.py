"""The n-gram over tokens against counting by hand."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.models.objectives import denominator_graph
from asrtool.models.objectives.denominator_graph import TokenNgrams, estimate_ngrams

NUM_TOKENS = 4
BEGIN, END = NUM_TOKENS, NUM_TOKENS + 1
SEQUENCES = st.lists(st.lists(st.integers(0, NUM_TOKENS - 1), max_size=6), min_size=1, max_size=8)


def estimate(sequences: list[list[int]], order: int, max_histories: int = 1000) -> TokenNgrams:
    return estimate_ngrams([np.array(one, dtype=np.uint32) for one in sequences], NUM_TOKENS, order, max_histories)


def context(tokens: list[int], place: int, size: int) -> tuple[int, ...]:
    """Up to `size` tokens before `place`, with the beginning."""
    return tuple([BEGIN, *tokens][max(place + 1 - size, 0) : place + 1])


@given(SEQUENCES, st.integers(2, 4))
@settings(max_examples=100, deadline=None)
def test_probabilities_are_relative_frequencies_behind_the_tokens_before(
    sequences: list[list[int]], order: int
) -> None:
    counts: Counter[tuple[int, ...]] = Counter()
    of_history: Counter[tuple[int, ...]] = Counter()
    for tokens in sequences:
        for place, token in enumerate([*tokens, END]):
            history = context(tokens, place, order - 1)
            counts[(*history, token)] += 1
            of_history[history] += 1
    ngrams = estimate(sequences, order)
    for tokens in sequences:
        expected = [
            math.log(counts[(*history, token)] / of_history[history])
            for place, token in enumerate([*tokens, END])
            for history in [context(tokens, place, order - 1)]
        ]
        assert ngrams.log_probs(tokens, -99.0) == pytest.approx(expected)


@given(SEQUENCES, st.integers(2, 4), st.integers(0, 12))
@settings(max_examples=150, deadline=None)
def test_behind_a_history_that_is_left_out_its_longest_end_counts(
    sequences: list[list[int]], order: int, max_histories: int
) -> None:
    """The automaton has only its state, and finds the history of the tokens before."""
    ngrams = estimate(sequences, order, max_histories)
    kept = set(ngrams.histories)
    assert len(kept) == len(ngrams.histories)
    longer = [history for history in kept if len(history) > 1]
    assert len(longer) <= max_histories
    counts: Counter[tuple[tuple[int, ...], int]] = Counter()
    for tokens in sequences:
        state = 0
        for place, token in enumerate([*tokens, END]):
            ends = [context(tokens, place, size) for size in range(order - 1, 0, -1)]
            history = next(end for end in ends if end in kept)
            assert ngrams.histories[state] == history
            assert ngrams.last_token(state) == (tokens[place - 1] if place else 0)
            counts[history, token] += 1
            if token != END:
                state = ngrams.arcs[state][token].target
    for state, history in enumerate(ngrams.histories):
        total = sum(count for (of, _), count in counts.items() if of == history)
        found = {token: arc.count for token, arc in ngrams.arcs[state].items()}
        assert found == {token: count for (of, token), count in counts.items() if of == history and token != END}
        log_probs = [*(arc.log_prob for arc in ngrams.arcs[state].values()), ngrams.ends[state]]
        assert sum(map(math.exp, log_probs)) == pytest.approx(1.0 if total else 0.0)  # nothing behind longer ones alone
        assert ngrams.ends[state] == (math.log(counts[history, END] / total) if counts[history, END] else -math.inf)


def test_the_most_frequent_histories_are_kept() -> None:
    ngrams = estimate([[1, 2]] * 5 + [[2, 1]] * 3 + [[3]], 3, 3)
    assert ngrams.histories == [(BEGIN,), (1,), (2,), (3,), (1, 2), (BEGIN, 1), (2, 1)]


def test_counts_do_not_depend_on_how_many_are_counted_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    sequences = [random.integers(0, NUM_TOKENS, size).tolist() for size in random.integers(0, 30, 50)]
    whole = estimate(sequences, 3)
    monkeypatch.setattr(denominator_graph, "PIECE", 40)
    assert estimate(sequences, 3) == whole


def test_what_was_never_seen_costs_what_it_is_given_and_the_rest_is_as_behind_its_end() -> None:
    ngrams = estimate([[1, 2, 3], [3, 2, 1], [2, 2], [0, 3, 2]], 3, 0)
    assert ngrams.log_probs([1, 3, 2, 1], -7.0) == pytest.approx(
        [math.log(1 / 4), -7.0, math.log(2 / 3), math.log(1 / 5), math.log(1 / 2)]
    )
    assert ngrams.log_probs([0], -7.0)[1] == -7.0  # no utterance ends there
