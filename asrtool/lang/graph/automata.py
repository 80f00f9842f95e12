"""Automata of a decoding graph, as text that OpenFst, kaldifst and k2 read.

A line is an arc, ``from to input output cost``, or a final state, ``state cost``; costs are negative natural
logarithms, 0 if left out. State 0 is the start, and the first line begins with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from asrtool.lang.ngram.model import Ngrams
from asrtool.lang.text import BACKOFF, BOS, EOS
from asrtool.lang.tokens.lexicon import Pronunciation, disambiguate

EPSILON_LABEL = 0
CHUNK_LINES = 2**16
Transducer = Callable[[Sequence[int]], str]  # ids of the tokens of a word -> H, as text


@dataclass(frozen=True)
class Automata:
    """Parts of a decoding graph: H, L and G, and the input labels of L."""

    topology: str
    lexicon: str
    grammar: str
    tokens: tuple[int, ...]  # those that words consist of
    disambig: tuple[int, ...]  # disambiguation symbols


def make_automata(
    lexicon: Sequence[Pronunciation],
    model: Ngrams,
    tokens: Mapping[str, int],
    words: Mapping[str, int],
    transducer: Transducer,
) -> Automata:
    """Make the automata for `lexicon` and the n-gram `model`.

    `tokens` and `words` are symbol tables. `transducer` makes H, whose output label i + 1 is token i.
    """
    tokens = _with_disambig(tokens, disambiguate(lexicon)[1])
    spoken = sorted({tokens[token] for _, tokenization in lexicon for token in tokenization})
    disambig = [label for token, label in tokens.items() if token.startswith("#") and label not in spoken]
    return Automata(
        transducer([label - 1 for label in spoken]),
        make_lexicon_fst(lexicon, tokens, words),
        make_grammar_fst(model, words),
        tuple(spoken),
        tuple(disambig),
    )


def _with_disambig(tokens: Mapping[str, int], highest: int) -> dict[str, int]:
    """Return `tokens` with ``#1`` to ``#highest``.

    A lexicon that a user extended may need more than its table has. The new labels are not in HLG.
    """
    missing = [symbol for symbol in (f"#{number}" for number in range(1, highest + 1)) if symbol not in tokens]
    first = max(tokens.values()) + 1
    return {**tokens, **{symbol: label for label, symbol in enumerate(missing, first)}}


def make_lexicon_fst(lexicon: Sequence[Pronunciation], tokens: Mapping[str, int], words: Mapping[str, int]) -> str:
    """Make L: tokens to words, any number of them; the back-off symbol passes."""
    pronunciations, _ = disambiguate(lexicon)
    lines = [f"0 0 {tokens[BACKOFF]} {words[BACKOFF]}"]
    num_states = 1
    for word, tokenization in pronunciations:
        source, output = 0, words[word]
        for token in tokenization[:-1]:
            lines.append(f"{source} {num_states} {tokens[token]} {output}")
            source, output = num_states, EPSILON_LABEL
            num_states += 1
        lines.append(f"{source} 0 {tokens[tokenization[-1]]} {output}")
    return _text([*lines, "0"])


def make_grammar_fst(model: Ngrams, words: Mapping[str, int]) -> str:
    """G: sentences with -ln p; back-off arcs read ``#0`` and write nothing.

    A state is a history, an arc an n-gram, and the n-grams of ``</s>`` are final weights. N-grams with words that are
    not in `words` are left out.
    """
    label = np.array([words.get(word, -1) for word in model.words])
    bos, eos = model.words.index(BOS), model.words.index(EOS)
    label[[bos, eos]] = -1
    start = model.history[model.find(np.zeros(1, np.int64), np.array([bos]))][0]
    state = np.arange(len(model.history))  # of a node that is a history
    state[[0, start]] = start, 0
    cost = -math.log(10) * model.log10_prob
    nodes = np.flatnonzero((label[model.word] >= 0) & np.isfinite(cost))
    nodes = nodes[nodes > 0]
    labels = label[model.word[nodes]]
    arcs = state[model.parent[nodes]], state[model.history[nodes]], labels, labels, cost[nodes]
    nodes = np.flatnonzero(model.history == np.arange(len(model.history)))[1:]
    backoff = np.full(len(nodes), words[BACKOFF])
    weights = -math.log(10) * model.log10_backoff[nodes]
    shorter = state[model.history[model.suffix[nodes]]]
    backoffs = state[nodes], shorter, backoff, np.zeros_like(backoff), weights
    ends = np.flatnonzero(model.word == eos)
    ends = ends[(ends > 0) & np.isfinite(cost[ends])]
    finals = state[model.parent[ends]], cost[ends]
    pieces: list[str] = []
    for is_first in (True, False):  # the first line names the first state
        for columns in (arcs, backoffs, finals):
            pieces += _lines(*(column[(columns[0] == 0) == is_first] for column in columns))
    return "".join(pieces)


def _lines(*columns: np.ndarray) -> Iterator[str]:
    """Format columns of integers and a weight, many lines at once to save memory."""
    pattern = "%d " * (len(columns) - 1) + "%.7g\n"
    for begin in range(0, len(columns[0]), CHUNK_LINES):
        some = (column[begin : begin + CHUNK_LINES].tolist() for column in columns)
        yield "".join([pattern % row for row in zip(*some, strict=True)])


def make_relabel_fst(kept: Iterable[int], removed: Iterable[int]) -> str:
    """Make the automaton that, composed on the left, turns `removed` into epsilon."""
    lines = [f"0 0 {label} {label}" for label in kept]
    lines += [f"0 0 {EPSILON_LABEL} {label}" for label in removed]
    return _text([*lines, "0"])


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
