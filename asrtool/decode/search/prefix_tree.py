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
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from asrtool.decode.parameters import Weights
from asrtool.decode.words import piece_text, starts_word
from asrtool.lang.ngram.model import NgramLm, NgramTables, find_key, score_word
from asrtool.lang.text import EOS
from asrtool.models.objectives.topology import Span

NO_PREFIX = -1
# State of the language model after a token: its state after the last closed word; the number of the open word's text,
# where 0 is the empty text and NO_PREFIX is a text with which no vocabulary word begins; the number of the pieces of
# the open word, while it may become a word of the vocabulary.
Known = tuple[int, int, int]
MAX_REMEMBERED = 20_000  # added tokens kept, about 8 MB


@dataclass(slots=True, eq=False)
class Prefix:
    """Node of the tree: the last token, and the state of the language model."""

    parent: Any  # parent node, of the same class; None for the root
    token: int
    known: Known
    lm: float = 0.0  # lm_weight * (ln p - penalty of closed words and pieces of unknown ones)
    children: dict[int, Any] = field(default_factory=dict)  # by token
    row: int = 0  # row of its token
    log_prob: float = 0.0  # ln p of the token in that row

    def spans(self) -> list[Span]:
        """Return the tokens from the root to this node, a row each."""
        spans, node = [], self
        while node.parent is not None:
            spans.append((node.token, node.row, node.row + 1, node.log_prob))
            node = node.parent
        return spans[::-1]

    def tokens(self) -> tuple[int, ...]:
        """Return the token ids from the root to this node."""
        return tuple(token for token, *_ in self.spans())


Node = TypeVar("Node", bound=Prefix)


class Language(NamedTuple):
    """N-grams, prefixes of words and marks of tokens, as searches read them.

    By token: whether it opens a word. By prefix: the number, in the n-gram, of the word that it is if it ends
    there, and whether it is one of the vocabulary; NO_PREFIX comes last.
    """

    ngrams: NgramTables
    opens: np.ndarray
    keys: np.ndarray  # rising: prefix * number of tokens + token, where
    longer: np.ndarray  # this prefix follows
    word: np.ndarray
    is_word: np.ndarray
    log_piece: float  # ln p of a piece in a uniform draw
    end: int  # number of the end of a sentence


def read_token(language: Language, known: Known, token: int, word_penalty: float) -> tuple[float, Known]:
    """Return the gain of ln p by a token, and the state after it."""
    if language.opens[token]:
        gain, state = close_word(language, known, word_penalty)
        return extend_word(language, gain, (state, 0, 0), token)
    return extend_word(language, 0.0, known, token)


def extend_word(language: Language, log_prob: float, known: Known, token: int) -> tuple[float, Known]:
    """Return `log_prob` plus the gain by the piece of a token, and the state."""
    state, prefix, unpaid = known
    unpaid += 1
    if prefix != NO_PREFIX:
        at = find_key(language.keys, prefix * len(language.opens) + token)
        prefix = int(language.longer[at]) if at >= 0 else NO_PREFIX
    if prefix == NO_PREFIX:
        log_prob += unpaid * language.log_piece
        unpaid = 0
    return log_prob, (state, prefix, unpaid)


def close_word(language: Language, known: Known, word_penalty: float) -> tuple[float, int]:
    """Return ln p of the open word minus its penalty, and the state after it."""
    state, prefix, unpaid = known
    if prefix == 0:
        return 0.0, state
    log_prob, state = score_word(language.ngrams, state, language.word[prefix])
    log_prob -= word_penalty
    if not language.is_word[prefix]:
        log_prob += unpaid * language.log_piece
    return log_prob, state


def end_sentence(language: Language, known: Known, word_penalty: float) -> float:
    """Return ln p of the open word minus its penalty, and of the end."""
    log_prob, state = close_word(language, known, word_penalty)
    return log_prob + score_word(language.ngrams, state, language.end)[0]


class PrefixTree:
    """Token sequences of `pieces` with scores of the n-gram `lm` of `words`."""

    def __init__(self, pieces: Sequence[str], lm: NgramLm, words: Iterable[str]) -> None:
        self.start: Known = lm.start(), 0, 0
        opens = np.array([starts_word(piece) for piece in pieces])
        encoded = {word.encode() for word in words}
        prefixes = sorted({b"", *(word[:length] for word in encoded for length in range(len(word) + 1))})
        number = {text: i for i, text in enumerate(prefixes)}
        tokens_of = defaultdict(list)
        for token, piece in enumerate(pieces):
            tokens_of[piece_text(piece)].append(token)
        longest = max(map(len, tokens_of))
        longer = {
            number[text[:cut]] * len(pieces) + token: i
            for i, text in enumerate(prefixes)
            for cut in range(max(0, len(text) - longest), len(text) + 1)
            for token in tokens_of.get(text[cut:], ())
            if not (cut and opens[token])
        }
        words_of = [*(lm.number(text.decode(errors="replace")) for text in prefixes), lm.number("")]
        self.language = Language(
            lm.tables,
            opens,
            np.array(sorted(longer), np.int64),
            np.array([longer[key] for key in sorted(longer)], np.int64),
            np.array(words_of),
            np.array([*(text in encoded for text in prefixes), False]),
            -math.log(len(pieces)),
            lm.number(EOS),
        )
        self.read = functools.lru_cache(MAX_REMEMBERED)(functools.partial(read_token, self.language))

    def add(self, prefix: Node, token: int, weights: Weights) -> Node:
        """Return a new child of `prefix`."""
        gain, known = self.read(prefix.known, token, weights.word_penalty)
        child = type(prefix)(prefix, token, known, prefix.lm + weights.lm_weight * gain)
        prefix.children[token] = child
        return child

    def end(self, known: Known, weights: Weights) -> float:
        """Return the score of the last word and the end of the sentence."""
        return weights.lm_weight * end_sentence(self.language, known, weights.word_penalty)
