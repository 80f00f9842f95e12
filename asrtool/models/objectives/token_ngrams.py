"""Unsmoothed n-gram over tokens as an automaton, for sequence training.

Its histories are all of one token and the most frequent longer ones; another history is cut to its longest known end.
A token that was never seen after a history has no arc there (after Povey et al. 2016, section 3.2): with smoothing
each state would have an arc for each token. Needs no torch.

Letters in names: U tokens of an utterance, K different n-grams, O tokens of an n-gram.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

PIECE = 2**20  # tokens that are counted at a time
ORDERS = 2, 4  # least and greatest; four of 50,000 tokens are numbered in 64 bits

History = tuple[int, ...]


@dataclass(frozen=True)
class Arc:
    """Arc from a history by a token."""

    target: int  # state
    count: int  # in training
    log_prob: float  # natural logarithm


@dataclass(frozen=True)
class TokenNgrams:
    """Automaton: state i is `histories[i]`, which may start with `begin`."""

    begin: int
    histories: list[History]  # the first one is that of the beginning
    arcs: list[dict[int, Arc]]  # of each state, by token
    ends: list[float]  # ln of the probability that the utterance ends there; -inf where it never did

    @cached_property
    def states(self) -> dict[History, int]:
        """The state of each history."""
        return {history: state for state, history in enumerate(self.histories)}

    def last_token(self, state: int, default: int) -> int:
        """The token before, `default` at the beginning of the utterance."""
        last = self.histories[state][-1]
        return default if last == self.begin else last

    def log_probs(self, tokens: Sequence[int], unseen: float) -> list[float]:
        """Return ln P of each token given those before it, and of the end.

        `unseen` is the value of tokens that training lacks.
        """
        state, found = 0, []
        for token in tokens:
            arc = self.arcs[state].get(token)
            found.append(arc.log_prob if arc else unseen)
            state = arc.target if arc else self._next(state, token)
        return [*found, max(self.ends[state], unseen)]

    def _next(self, state: int, token: int) -> int:
        return _longest((*self.histories[state], token), self.states, 0)


def estimate_ngrams(sequences: Iterable[np.ndarray], num_tokens: int, order: int, max_histories: int) -> TokenNgrams:
    """Estimate the n-gram of `order` from the tokens (U,) of all utterances.

    `max_histories` limits histories of two tokens or more.
    """
    begin, end = num_tokens, num_tokens + 1
    ngrams_KO, counts_K = count_ngrams(sequences, num_tokens, order)
    seen = list(zip(map(tuple, ngrams_KO.tolist()), counts_K.tolist(), strict=True))
    states = {history: i for i, history in enumerate(_choose_histories(seen, begin, max_histories))}
    counts: list[Counter[int]] = [Counter() for _ in states]
    for ngram, count in seen:
        counts[_longest(ngram[:-1], states, 0)][ngram[-1]] += count
    arcs: list[dict[int, Arc]] = []
    ends = []
    for history, of_state in zip(states, counts, strict=True):
        total = of_state.total()
        ends.append(math.log(of_state[end] / total) if end in of_state else -math.inf)
        arcs.append(
            {
                token: Arc(_longest((*history, token), states, 0), count, math.log(count / total))
                for token, count in sorted(of_state.items())
                if token != end
            }
        )
    return TokenNgrams(begin, list(states), arcs, ends)


def count_ngrams(sequences: Iterable[np.ndarray], num_tokens: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """The different n-grams (K, O) and how often each was seen (K,).

    Before the tokens of an utterance stand beginnings, token `num_tokens`, behind them its end, the token after that.
    """
    base = num_tokens + 2
    assert base**order < 2**63, f"{num_tokens} tokens, order {order}"
    before, behind = np.full(order - 1, num_tokens), np.array([num_tokens + 1])
    keys_K, counts_K = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for piece in _pieces(sequences):
        padded = np.concatenate([part for tokens_U in piece for part in (before, tokens_U, behind)]).astype(np.int64)
        keys = sum(padded[i : len(padded) - order + 1 + i] * base ** (order - 1 - i) for i in range(order))
        is_whole = np.concatenate([np.arange(len(tokens_U) + order) <= len(tokens_U) for tokens_U in piece])
        found, times = np.unique(keys[is_whole[: len(keys)]], return_counts=True)
        merged, place = np.unique(np.concatenate([keys_K, found]), return_inverse=True)
        counts_K = np.bincount(place.reshape(-1), np.concatenate([counts_K, times]), len(merged)).astype(np.int64)
        keys_K = merged
    powers_O = base ** np.arange(order - 1, -1, -1, dtype=np.int64)
    return keys_K[:, None] // powers_O % base, counts_K


def _pieces(sequences: Iterable[np.ndarray]) -> Iterator[list[np.ndarray]]:
    piece: list[np.ndarray] = []
    size = 0
    for tokens_U in sequences:
        piece.append(tokens_U)
        size += len(tokens_U)
        if size >= PIECE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _choose_histories(seen: Iterable[tuple[History, int]], begin: int, max_longer: int) -> list[History]:
    """Return the initial history, all of one token, and `max_longer` longer ones.

    Of two equally frequent ones the shorter is first. The utterance's beginning is at most the first token of a
    history.
    """
    counts: defaultdict[History, int] = defaultdict(int)
    for ngram, count in seen:
        history = ngram[:-1]
        for first in range(len(history)):
            if history[first : first + 2] != (begin, begin):
                counts[history[first:]] += count
    ranked = sorted(counts, key=lambda history: (-counts[history], len(history), history))
    longer = [history for history in ranked if len(history) > 1]
    tokens = sorted(history for history in ranked if len(history) == 1 and history != (begin,))
    return [(begin,), *tokens, *longer[:max_longer]]


def _longest(history: History, states: dict[History, int], default: int) -> int:
    """The state of the longest end of `history` that has one."""
    return next((states[history[first:]] for first in range(len(history)) if history[first:] in states), default)
