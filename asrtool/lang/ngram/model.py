"""N-gram model in memory: one node a known n-gram, its history the parent.

Node 0 is the empty history. Nodes are sorted by order, parent and word, so ``parent * num_words + word`` rises over
all nodes, and one search finds an n-gram.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asrtool.errors import AsrtoolError
from asrtool.lang.text import BOS, EOS, UNK

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LOG10_NEVER = -99.0  # log10 of probability zero in ARPA files, for an unknown word without <unk>
MAX_REMEMBERED = 1_000_000  # steps kept, about 200 MB


@dataclass(frozen=True)
class Ngrams:
    """Back-off model: log10 p(word | history) of known n-grams, and back-off weights.

    `words[i]` is word i. `starts[k]` is the first node of order k, for k from 0 to order + 1. The other arrays have
    one value a node, 0 for node 0.
    """

    words: list[str]
    starts: list[int]
    parent: Ints
    word: Ints
    log10_prob: Floats
    log10_backoff: Floats

    @property
    def order(self) -> int:
        """Words of the longest n-grams."""
        return len(self.starts) - 2

    @functools.cached_property
    def keys(self) -> Ints:
        """Ascending keys; -1 for node 0, the root."""
        keys = self.parent * len(self.words) + self.word
        keys[0] = -1
        return keys

    def find(self, parents: Ints, words: Ints) -> Ints:
        """Return the nodes of `words` after the histories `parents`, 0 if unknown."""
        keys = parents * len(self.words) + words
        nodes = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[nodes] == keys, nodes, 0)

    @functools.cached_property
    def suffix(self) -> Ints:
        """Node of the longest known proper suffix of each node."""
        suffix = np.zeros_like(self.parent)
        for order in range(2, self.order + 1):
            nodes = np.arange(self.starts[order], self.starts[order + 1])
            shorter = self.parent[nodes]
            while len(nodes):
                shorter = suffix[shorter]
                found = self.find(shorter, self.word[nodes])
                suffix[nodes] = found
                more = (found == 0) & (shorter > 0)
                nodes, shorter = nodes[more], shorter[more]
        return suffix

    @functools.cached_property
    def history(self) -> Ints:
        """Shortest suffix of each node that predicts the same.

        It has longer n-grams or a back-off weight.
        """
        distinct = self.log10_backoff != 0
        distinct[self.parent[1:]] = True
        history = np.arange(len(self.parent))
        for order in range(1, self.order + 1):
            nodes = np.arange(self.starts[order], self.starts[order + 1])
            history[nodes] = np.where(distinct[nodes], nodes, history[self.suffix[nodes]])
        return history

    def extended(self, parent: Ints, word: Ints, log10_prob: Floats, log10_backoff: Floats) -> Ngrams:
        """Return this model with n-grams one order longer, given in any order."""
        by_key = np.argsort(parent * len(self.words) + word)
        return Ngrams(
            self.words,
            [*self.starts, self.starts[-1] + len(word)],
            np.concatenate([self.parent, parent[by_key]]),
            np.concatenate([self.word, word[by_key]]),
            np.concatenate([self.log10_prob, log10_prob[by_key]]),
            np.concatenate([self.log10_backoff, log10_backoff[by_key]]),
        )


def empty_ngrams(words: list[str]) -> Ngrams:
    """Return a model of order 0 over `words`: the empty history alone."""
    return Ngrams(words, [0, 1], np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1), np.zeros(1))


def find_key(keys: Ints, key: int) -> int:
    """Return the position of `key` in rising `keys`, -1 if it is not there."""
    at = int(np.searchsorted(keys, key))
    return at if at < len(keys) and keys[at] == key else -1


class NgramTables(NamedTuple):
    """Columns of a model that scoring reads, a value a node."""

    keys: Ints
    suffix: Ints
    history: Ints
    log10_prob: Floats
    log10_backoff: Floats
    num_words: int


def score_word(ngrams: NgramTables, state: int, word: int) -> tuple[float, int]:
    """Return ln p of a word after a state, and the state after it.

    `word` is its number, -1 for a word that even ``<unk>`` does not stand for.
    """
    if word < 0:
        return LOG10_NEVER * math.log(10), 0
    log10_prob = 0.0
    node = find_key(ngrams.keys, state * ngrams.num_words + word)
    while node < 0 and state > 0:
        log10_prob += ngrams.log10_backoff[state]
        state = int(ngrams.suffix[state])
        node = find_key(ngrams.keys, state * ngrams.num_words + word)
    node = max(node, 0)
    return float(log10_prob + ngrams.log10_prob[node]) * math.log(10), int(ngrams.history[node])


class NgramLm:
    """Back-off model that scores one word at a time, or sentences.

    States are small integers: histories with equal continuations have the same one.
    """

    def __init__(self, model: Ngrams) -> None:
        columns = model.keys, model.suffix, model.history, model.log10_prob, model.log10_backoff
        self.tables = NgramTables(*columns, len(model.words))
        self._ids = {word: number for number, word in enumerate(model.words)}
        self._steps: dict[tuple[int, str], tuple[float, int]] = {}

    def number(self, word: str) -> int:
        """Return the number of `word`, of ``<unk>`` if unknown, -1 without ``<unk>``."""
        return self._ids.get(word, self._ids.get(UNK, -1))

    def start(self) -> int:
        """Return the state before the first word of a sentence."""
        if BOS not in self._ids:
            return 0
        return int(self.tables.history[max(find_key(self.tables.keys, self._ids[BOS]), 0)])

    def step(self, state: int, word: str) -> tuple[float, int]:
        """Return ln p of `word` after `state`, and the state after `word`.

        ``</s>`` ends the sentence. An unknown word is ``<unk>``.
        """
        result = self._steps.get((state, word))
        if result is None:
            if len(self._steps) >= MAX_REMEMBERED:
                self._steps.clear()
            result = self._steps[state, word] = score_word(self.tables, state, self.number(word))
        return result

    def log_prob(self, sentence: str | Sequence[str]) -> float:
        """Return ln p of a sentence with its end."""
        total, state = 0.0, self.start()
        for word in (*(sentence.split() if isinstance(sentence, str) else sentence), EOS):
            log_prob, state = self.step(state, word)
            total += log_prob
        return total

    def perplexity(self, sentences: str | Iterable[str]) -> float:
        """Return the perplexity of one or several sentences, whose ends count as words."""
        split = [sentence.split() for sentence in ([sentences] if isinstance(sentences, str) else sentences)]
        if not split:
            raise AsrtoolError("a text without sentences has no perplexity", "give at least one")
        return math.exp(-sum(map(self.log_prob, split)) / sum(len(words) + 1 for words in split))
