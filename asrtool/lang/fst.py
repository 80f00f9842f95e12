"""The automata that a decoding graph is composed of, in the tropical semiring.

State 0 is the first one, except that of a grammar, whose first one is the history ``<s>``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import kaldifst
import numpy as np

from asrtool.lang.lexicon import Pronunciation, disambiguate
from asrtool.lang.ngram import Ngrams
from asrtool.lang.symbols import BACKOFF, BOS, EOS

EPSILON_LABEL = 0


def make_lexicon_fst(
    lexicon: Sequence[Pronunciation], tokens: Mapping[str, int], words: Mapping[str, int]
) -> kaldifst.StdVectorFst:
    """L: tokens to words, any number of words; the disambiguation symbol of back-off passes through."""
    pronunciations, _ = disambiguate(lexicon)
    lines = [f"0 0 {tokens[BACKOFF]} {words[BACKOFF]}"]
    num_states = 1
    for word, spelling in pronunciations:
        source, output = 0, words[word]
        for token in spelling[:-1]:
            lines.append(f"{source} {num_states} {tokens[token]} {output}")
            source, output = num_states, EPSILON_LABEL
            num_states += 1
        lines.append(f"{source} 0 {tokens[spelling[-1]]} {output}")
    return _compile([*lines, "0"])


def make_grammar_fst(model: Ngrams, words: Mapping[str, int]) -> kaldifst.StdVectorFst:
    """G: sentences with -ln p; back-off arcs read ``#0`` and write nothing.

    A state is a history, an arc an n-gram, and the n-grams of ``</s>`` are final weights. N-grams with words that are
    not in `words` are left out.
    """
    label = np.array([words.get(word, -1) for word in model.words])
    bos, eos = model.words.index(BOS), model.words.index(EOS)
    label[[bos, eos]] = -1
    start = model.history[model.find(np.zeros(1, np.int64), np.array([bos]))][0]
    cost = -math.log(10) * model.log10_prob
    nodes = np.flatnonzero((label[model.word] >= 0) & np.isfinite(cost))
    nodes = nodes[nodes > 0]
    labels = label[model.word[nodes]]
    lines = _lines(model.parent[nodes], model.history[nodes], labels, labels, cost[nodes])
    nodes = np.flatnonzero(model.history == np.arange(len(model.history)))[1:]
    backoff = np.full(len(nodes), words[BACKOFF])
    weights = -math.log(10) * model.log10_backoff[nodes]
    shorter = model.history[model.suffix[nodes]]
    lines += _lines(nodes, shorter, backoff, np.zeros_like(backoff), weights)
    ends = np.flatnonzero(model.word == eos)
    ends = ends[(ends > 0) & np.isfinite(cost[ends])]
    lines += [
        f"{state} {weight:.7g}" for state, weight in zip(model.parent[ends].tolist(), cost[ends].tolist(), strict=True)
    ]
    lines.sort(key=lambda line: not line.startswith(f"{start} "))  # the first line names the first state
    return _compile(lines)


def _lines(*columns: np.ndarray) -> list[str]:
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [f"{source} {to} {read} {write} {weight:.7g}" for source, to, read, write, weight in rows]


def make_relabel_fst(kept: Iterable[int], removed: Iterable[int]) -> kaldifst.StdVectorFst:
    """Composed to the left of an automaton, turns its input labels `removed` to epsilon."""
    lines = [f"0 0 {label} {label}" for label in kept]
    lines += [f"0 0 {EPSILON_LABEL} {label}" for label in removed]
    return _compile([*lines, "0"])


def make_ctc_fst(blank: int, tokens: Sequence[int]) -> kaldifst.StdVectorFst:
    """H: the labels of frames to tokens; repeats are one token unless `blank` is between.

    This is the map B of Graves et al. 2006, section 3.1. State 0 has read a blank or nothing, state i + 1 has read
    tokens[i].
    """
    lines = [f"0 0 {blank} {EPSILON_LABEL}"]
    lines += [f"0 {state} {token} {token}" for state, token in enumerate(tokens, 1)]
    for state, token in enumerate(tokens, 1):
        lines.append(f"{state} 0 {blank} {EPSILON_LABEL}")
        lines.append(f"{state} {state} {token} {EPSILON_LABEL}")
        lines += [f"{state} {to} {other} {other}" for to, other in enumerate(tokens, 1) if to != state]
    return _compile([*lines, *map(str, range(len(tokens) + 1))])


def _compile(lines: Sequence[str]) -> kaldifst.StdVectorFst:
    return kaldifst.compile("\n".join(lines) + "\n")
