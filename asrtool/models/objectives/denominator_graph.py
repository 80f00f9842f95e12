"""Denominator graph of sequence training: an n-gram over tokens as pdf states.

It is composed as the topology of a hybrid model composes H and the context of tokens: a state is a history and the
two pdfs of its last token, for its first row and further ones. An arc leads to the state of the next token and begins
it. Silence has one pdf. Needs no torch.

Letters in names: S states, A arcs, I tokens of an utterance, R rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from asrtool.models.objectives.decision_tree import FIRST, SILENCE, Tree
from asrtool.models.objectives.token_ngrams import Arc, TokenNgrams


@dataclass(frozen=True)
class LeafGraph:
    """States of rows and probabilities, not their logarithms, float64."""

    first_S: np.ndarray  # leaf of the first row of the token
    further_S: np.ndarray  # leaf of all others
    begin_S: np.ndarray  # of the first token of an utterance
    end_S: np.ndarray  # of the end of the utterance behind it
    share_S: np.ndarray  # of all tokens of training
    sources_A: np.ndarray  # of arcs: the state
    targets_A: np.ndarray  # the next one
    probs_A: np.ndarray


def compose(ngrams: TokenNgrams, tree: Tree) -> LeafGraph:
    """The graph of `ngrams` in the leaves of `tree`."""

    def leave(history: int) -> dict[tuple[int, int, int], Arc]:
        """History, first and further leaf of each next token."""
        leaves_V2 = tree.leaves_VV2[ngrams.last_token(history, SILENCE)]
        return {(arc.target, *leaves_V2[token].tolist()): arc for token, arc in ngrams.arcs[history].items()}

    found = [leave(history) for history in range(len(ngrams.histories))]
    counts: Counter[tuple[int, int, int]] = Counter()
    for of_history in found:
        counts.update({key: arc.count for key, arc in of_history.items()})
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
    tokens_R, places_R = tree.tokens_L[leaves_R], tree.places_L[leaves_R]
    begins = np.diff(tokens_R, prepend=-1) != 0
    begins |= (places_R == FIRST) & (tokens_R != SILENCE)
    begins_I = np.flatnonzero(begins)
    tokens_I = tokens_R[begins_I]
    lefts_I = np.concatenate([[SILENCE], tokens_I[:-1]])
    first_I, further_I = tree.leaves_VV2[lefts_I, tokens_I].T
    return Chain(tokens_I.tolist(), begins_I, first_I.astype(np.int64), further_I.astype(np.int64))
