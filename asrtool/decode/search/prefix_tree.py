"""Prefix tree of token sequences with word n-gram scores (shallow fusion).

A word is closed when a token opens the next one; after the last row the last word and the end of the sentence follow.
A word outside the vocabulary is ``<unk>`` with uniformly drawn pieces, p(<unk>) / V ** pieces, and pays for them as
soon as no vocabulary word begins so. Otherwise joining words would be the cheapest reading.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from asrtool.decode.parameters import Weights
from asrtool.decode.words import opens_word, written
from asrtool.models.objectives.topology import Span


class WordLm(Protocol):
    """Interface of a language model for a search; states are opaque."""

    def start(self) -> Any:
        """The state before the first word."""

    def step(self, state: Any, word: str) -> tuple[float, Any]:
        """Return ln p of `word` (``</s>`` ends the sentence) and the next state."""


class Prefix:
    """A node of the tree."""

    __slots__ = ("children", "lm", "lm_state", "parent", "token", "unpaid", "word")

    def __init__(self, parent: Prefix | None, token: int, lm_state: Any) -> None:
        self.parent = parent
        self.token = token
        self.word = b""  # the open word, as far as it goes; a token may be a part of a character
        self.unpaid = 0  # its pieces, as long as it may become a word of the vocabulary
        self.lm = 0.0  # lm_weight * (ln p - penalty of closed words and pieces of unknown ones)
        self.lm_state = lm_state
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

    def __init__(self, parent: Prefix | None, token: int, lm_state: Any) -> None:
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

    def __init__(self, pieces: Sequence[str], lm: WordLm | None, words: Iterable[str], node: type[Node]) -> None:
        self.texts = [written(piece) for piece in pieces]
        self.opens = [opens_word(piece) for piece in pieces]
        self.lm = lm
        self.words = frozenset(word.encode() for word in words)
        self.beginnings = frozenset(word[:length] for word in self.words for length in range(len(word) + 1))
        self.log_piece = -math.log(len(pieces))  # of a uniform draw
        self.node = node

    def root(self, no_token: int) -> Node:
        """Return the node before the first token, with a dummy token."""
        return self.node(None, no_token, self.lm.start() if self.lm else None)

    def add(self, prefix: Node, token: int, weights: Weights) -> Node:
        """A new child of `prefix`."""
        child = self.node(prefix, token, prefix.lm_state)
        prefix.children[token] = child
        child.lm = prefix.lm
        if not self.lm:
            return child
        child.word, child.unpaid = prefix.word, prefix.unpaid
        if self.opens[token]:
            log_prob, child.lm_state = self._close(prefix, weights.word_penalty)
            child.lm += weights.lm_weight * log_prob
            child.word, child.unpaid = b"", 0
        child.word += self.texts[token]
        child.unpaid += 1
        if child.word not in self.beginnings:
            child.lm += weights.lm_weight * child.unpaid * self.log_piece
            child.unpaid = 0
        return child

    def end(self, prefix: Node, weights: Weights) -> float:
        """Return the score of the last word and the end of the sentence."""
        if not self.lm:
            return 0.0
        last, state = self._close(prefix, weights.word_penalty)
        return weights.lm_weight * (last + self.lm.step(state, "</s>")[0])

    def _close(self, prefix: Node, word_penalty: float) -> tuple[float, Any]:
        """Return ln p of the open word minus its penalty, and the state after it."""
        if not prefix.word or not self.lm:
            return 0.0, prefix.lm_state
        log_prob, state = self.lm.step(prefix.lm_state, prefix.word.decode(errors="replace"))
        log_prob -= word_penalty
        return log_prob if prefix.word in self.words else log_prob + prefix.unpaid * self.log_piece, state
