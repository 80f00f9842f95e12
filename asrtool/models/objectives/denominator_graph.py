"""Denominator graph of sequence training: an n-gram over tokens as pdf states.

It is composed as the topology of a hybrid model composes H and the context of tokens: a state is a history and the
two pdfs of its last token, for its first row and further ones. An arc leads to the state of the next token and begins
it. Silence has one pdf.

The n-gram is not smoothed. Its histories are all of one token and the most frequent longer ones; another history is cut
to its longest known end. A token that was never seen after a history has no arc there (after Povey et al. 2016, section
3.2): with smoothing each state would have an arc for each token. Needs no torch.

Letters in names: S states, A arcs, I or U tokens of an utterance, R rows, K different n-grams, O tokens of an n-gram.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from asrtool.models.objectives.decision_tree import FIRST, SILENCE, Tree


@dataclass(frozen=True)
class LeafGraph:
    """States of rows and probabilities, not their logarithms, float64."""

    first_S: np.ndarray  # leaf of the first row of the token
    further_S: np.ndarray  # leaf of all others
    begin_S: np.ndarray  # P that an utterance begins with the token
    end_S: np.ndarray  # P that the utterance ends after it
    share_S: np.ndarray  # fraction of the tokens of training
    sources_A: np.ndarray  # source state of each arc
    targets_A: np.ndarray  # the next one
    probs_A: np.ndarray


def compose(ngrams: TokenNgrams, tree: Tree) -> LeafGraph:
    """Return the graph of `ngrams` over the leaves of `tree`."""

    def leave(history: int) -> dict[tuple[int, int, int], Arc]:
        """Return (history, first leaf, further leaf) -> arc of each next token."""
        leaves_V2 = tree.leaves_VV2[ngrams.last_token(history)]
        return {(arc.target, *leaves_V2[token].tolist()): arc for token, arc in ngrams.arcs[history].items()}

    found = [leave(history) for history in range(len(ngrams.histories))]
    counts: Counter[tuple[int, int, int]] = Counter()
    for successors in found:
        counts.update({key: arc.count for key, arc in successors.items()})
    states = sorted(counts)
    number = {key: state for state, key in enumerate(states)}
    arcs = [
        (source, number[key], arc.log_prob)
        for source, (history, _, _) in enumerate(states)
        for key, arc in found[history].items()
    ]
    sources_A, targets_A, log_weights_A = np.array(arcs).reshape(-1, 3).T
    begin_S, share_S = np.zeros(len(states)), np.array([counts[key] for key in states], dtype=np.float64)
    for key, arc in found[0].items():
        begin_S[number[key]] = np.exp(arc.log_prob)
    histories_S, first_S, further_S = np.array(states).T
    return LeafGraph(
        first_S=first_S,
        further_S=further_S,
        begin_S=begin_S,
        end_S=np.exp(np.array(ngrams.ends)[histories_S]),
        share_S=share_S / share_S.sum(),
        sources_A=sources_A.astype(np.int64),
        targets_A=targets_A.astype(np.int64),
        probs_A=np.exp(log_weights_A),
    )


@dataclass(frozen=True)
class Chain:
    """Tokens of an aligned utterance in order, with silence, and their pdfs."""

    tokens: list[int]
    begins_I: np.ndarray  # rows
    first_I: np.ndarray
    further_I: np.ndarray


def chain_of(leaves_R: np.ndarray, tree: Tree) -> Chain:
    """Return the tokens of an utterance from the pdf of each row.

    The first row always begins a token.
    """
    tokens_R, positions_R = tree.tokens_L[leaves_R], tree.positions_L[leaves_R]
    begins = np.diff(tokens_R, prepend=-1) != 0
    begins |= (positions_R == FIRST) & (tokens_R != SILENCE)
    begins_I = np.flatnonzero(begins)
    tokens_I = tokens_R[begins_I]
    lefts_I = np.concatenate([[SILENCE], tokens_I[:-1]])
    first_I, further_I = tree.leaves_VV2[lefts_I, tokens_I].T
    return Chain(tokens_I.tolist(), begins_I, first_I.astype(np.int64), further_I.astype(np.int64))


PIECE = 2**20  # tokens that are counted at a time

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
    arcs: list[dict[int, Arc]]  # arcs of each state by token
    ends: list[float]  # ln of the probability that the utterance ends there; -inf if it never did

    @cached_property
    def states(self) -> dict[History, int]:
        """The state of each history."""
        return {history: state for state, history in enumerate(self.histories)}

    def last_token(self, state: int) -> int:
        """Return the previous token; silence at the start of the utterance."""
        last = self.histories[state][-1]
        return SILENCE if last == self.begin else last

    def log_probs(self, tokens: Sequence[int], unseen: float) -> list[float]:
        """Return ln P of each token given those before it, and of the end.

        `unseen` is the value of tokens that training lacks.
        """
        state, found = 0, []
        for token in tokens:
            arc = self.arcs[state].get(token)
            found.append(arc.log_prob if arc else unseen)
            state = arc.target if arc else _longest((*self.histories[state], token), self.states)
        return [*found, max(self.ends[state], unseen)]


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
        counts[_longest(ngram[:-1], states)][ngram[-1]] += count
    arcs: list[dict[int, Arc]] = []
    ends = []
    for history, next_tokens in zip(states, counts, strict=True):
        total = next_tokens.total()
        ends.append(math.log(next_tokens[end] / total) if end in next_tokens else -math.inf)
        arcs.append(
            {
                token: Arc(_longest((*history, token), states), count, math.log(count / total))
                for token, count in sorted(next_tokens.items())
                if token != end
            }
        )
    return TokenNgrams(begin, list(states), arcs, ends)


def count_ngrams(sequences: Iterable[np.ndarray], num_tokens: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct n-grams (K, O) and their counts (K,).

    Utterances are padded: start tokens `num_tokens` before them, and the end token `num_tokens` + 1 after them.
    """
    base = num_tokens + 2
    assert base**order < 2**63, f"{num_tokens} tokens, order {order}"
    before, after = np.full(order - 1, num_tokens), np.array([num_tokens + 1])
    keys_K, counts_K = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for piece in _pieces(sequences):
        padded = np.concatenate([part for tokens_U in piece for part in (before, tokens_U, after)]).astype(np.int64)
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


def _longest(history: History, states: dict[History, int]) -> int:
    """Return the state of the longest suffix of `history`, else the first state."""
    return next((states[history[first:]] for first in range(len(history)) if history[first:] in states), 0)
