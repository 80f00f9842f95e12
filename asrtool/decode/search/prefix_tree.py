"""Prefix tree of token sequences with word n-gram scores (shallow fusion).

A word is closed when a token opens the next one; after the last row the last word and the end of the sentence follow.
A word outside the vocabulary is ``<unk>`` with uniformly drawn pieces, p(<unk>) / V ** pieces, and pays for them as
soon as no vocabulary word begins so. Otherwise joining words would be the cheapest reading.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from asrtool.decode.parameters import Weights
from asrtool.decode.words import opens_word, written
from asrtool.lang.ngram.model import Ints, NgramLm, NgramTables, empty_ngrams, find_key, score_word
from asrtool.lang.text import EOS
from asrtool.models.objectives.topology import Span

NO_BEGINNING = -1
MAX_REMEMBERED = 20_000  # added tokens kept, about 8 MB


class WordTables(NamedTuple):
    """Words and n-gram as arrays.

    Beginnings of words are numbered; 0 is the empty one, and NO_BEGINNING the last, which stands for all others.
    """

    opens: np.ndarray  # whether each token opens a word
    keys: Ints  # beginning * number of tokens + token, rising, where
    longer: Ints  # a beginning follows
    word: Ints  # the number, in the n-gram, of the word that each beginning is if it ends there
    is_word: np.ndarray  # whether that is in the vocabulary
    log_piece: float  # of a uniform draw
    start: int  # state of the n-gram before the first word
    end: int  # number of </s>
    ngram: NgramTables

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def make_tables(pieces: Sequence[str], lm: NgramLm | None, words: Iterable[str]) -> WordTables:
    """Tables of `words` written in `pieces`; without `lm` the scores mean nothing."""
    lm = lm or NgramLm(empty_ngrams([]))
    encoded = {word.encode() for word in words}
    beginnings = sorted({b"", *(word[:length] for word in encoded for length in range(len(word) + 1))})
    number = {text: i for i, text in enumerate(beginnings)}
    opens = [opens_word(piece) for piece in pieces]
    tokens_of = defaultdict(list)
    for token, piece in enumerate(pieces):
        tokens_of[written(piece)].append(token)
    longest = max(map(len, tokens_of))
    longer = {
        number[text[:cut]] * len(pieces) + token: i
        for i, text in enumerate(beginnings)
        for cut in range(max(0, len(text) - longest), len(text) + 1)
        for token in tokens_of.get(text[cut:], ())
        if not (cut and opens[token])
    }
    keys = sorted(longer)
    return WordTables(
        np.array(opens),
        np.array(keys, np.int64),
        np.array([longer[key] for key in keys], np.int64),
        np.array([*(lm.number(text.decode(errors="replace")) for text in beginnings), lm.number("")]),
        np.array([*(text in encoded for text in beginnings), False]),
        -math.log(len(pieces)),
        lm.start(),
        lm.number(EOS),
        lm.tables,
    )


@functools.lru_cache(MAX_REMEMBERED)
def add_token(
    tables: WordTables, beginning: int, unpaid: int, state: int, token: int, word_penalty: float
) -> tuple[float, int, int, int]:
    """Return the gain of ln p by a token; beginning, unpaid and state after it.

    `unpaid` are the pieces of the open word, as long as it may become a word of the vocabulary.
    """
    log_prob = 0.0
    if tables.opens[token]:
        log_prob, state = close_word(tables, beginning, unpaid, state, word_penalty)
        beginning, unpaid = 0, 0
    unpaid += 1
    if beginning != NO_BEGINNING:
        at = find_key(tables.keys, beginning * len(tables.opens) + token)
        beginning = int(tables.longer[at]) if at >= 0 else NO_BEGINNING
    if beginning == NO_BEGINNING:
        log_prob += unpaid * tables.log_piece
        unpaid = 0
    return log_prob, beginning, unpaid, state


def close_word(tables: WordTables, beginning: int, unpaid: int, state: int, word_penalty: float) -> tuple[float, int]:
    """Return ln p of the open word minus its penalty, and the state after it."""
    if beginning == 0:
        return 0.0, state
    log_prob, state = score_word(tables.ngram, state, int(tables.word[beginning]))
    log_prob -= word_penalty
    if not tables.is_word[beginning]:
        log_prob += unpaid * tables.log_piece
    return log_prob, state


def end_sentence(tables: WordTables, beginning: int, unpaid: int, state: int, word_penalty: float) -> float:
    """Return ln p of the last word and the end."""
    log_prob, state = close_word(tables, beginning, unpaid, state, word_penalty)
    return log_prob + score_word(tables.ngram, state, tables.end)[0]


class Prefix:
    """A node of the tree."""

    __slots__ = ("beginning", "children", "lm", "lm_state", "parent", "token", "unpaid")

    def __init__(self, parent: Prefix | None, token: int, lm_state: int) -> None:
        self.parent = parent
        self.token = token
        self.beginning, self.unpaid, self.lm_state = 0, 0, lm_state  # as in add_token
        self.lm = 0.0  # lm_weight * (ln p - penalty of closed words and pieces of unknown ones)
        self.children: dict[int, Any] = {}  # of the class of this node

    def tokens(self) -> tuple[int, ...]:
        """The sequence from the root to this node."""
        reverse = []
        node = self
        while node.parent is not None:
            reverse.append(node.token)
            node = node.parent
        return tuple(reversed(reverse))


class Placed(Prefix):
    """A node that knows the row of its token, and its probability there."""

    __slots__ = ("log_prob", "row")

    def __init__(self, parent: Prefix | None, token: int, lm_state: int) -> None:
        super().__init__(parent, token, lm_state)
        self.row, self.log_prob = 0, 0.0

    def spans(self) -> list[Span]:
        """The tokens from the root to this node, a row each."""
        spans: list[Span] = []
        node: Prefix | None = self
        while isinstance(node, Placed) and node.parent is not None:
            spans.append((node.token, node.row, node.row + 1, node.log_prob))
            node = node.parent
        return spans[::-1]


Node = TypeVar("Node", bound=Prefix)


class PrefixTree(Generic[Node]):
    """Token sequences with language model scores, or without if `lm` is None."""

    def __init__(self, pieces: Sequence[str], lm: NgramLm | None, words: Iterable[str], node: type[Node]) -> None:
        self.tables = make_tables(pieces, lm, words)
        self.has_lm = lm is not None
        self.node = node

    def root(self, no_token: int) -> Node:
        """Return the node before the first token, with a dummy token."""
        return self.node(None, no_token, self.tables.start)

    def add(self, prefix: Node, token: int, weights: Weights) -> Node:
        """A new child of `prefix`."""
        child = self.node(prefix, token, prefix.lm_state)
        prefix.children[token] = child
        child.lm = prefix.lm
        if self.has_lm:
            gain, child.beginning, child.unpaid, child.lm_state = add_token(
                self.tables, prefix.beginning, prefix.unpaid, prefix.lm_state, token, weights.word_penalty
            )
            child.lm += weights.lm_weight * gain
        return child

    def end(self, prefix: Node, weights: Weights) -> float:
        """Return the score of the last word and the end of the sentence."""
        if not self.has_lm:
            return 0.0
        state = (prefix.beginning, prefix.unpaid, prefix.lm_state)
        return weights.lm_weight * end_sentence(self.tables, *state, weights.word_penalty)
