"""An n-gram model in memory: one node a known n-gram, its history the parent.

Node 0 is the empty history. Nodes of order k come before those of order k + 1, and within an order they are sorted by
parent and word; so ``parent * num_words + word`` rises over all nodes, and one search in it finds an n-gram.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ngrams:
    """A back-off model: log10 p(word | history) of known n-grams, and log10 weights for all others.

    `words[i]` is word i. `starts[k]` is the first node of order k, for k from 0 to order + 1: a model of order n has
    nodes ``starts[n] .. starts[n + 1] - 1`` of length n. The other arrays have one value a node, 0 for node 0.
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
        """Rising; -1 for node 0, which is nobody's child."""
        keys = self.parent * len(self.words) + self.word
        keys[0] = -1
        return keys

    def find(self, parents: Ints, words: Ints) -> Ints:
        """The nodes of `words` after the histories `parents`, 0 where the model does not know the n-gram."""
        keys = parents * len(self.words) + words
        nodes = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[nodes] == keys, nodes, 0)

    @functools.cached_property
    def suffix(self) -> Ints:
        """For each node that of its longest known proper suffix."""
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
        """For each node the shortest suffix that predicts the same: one with longer n-grams, or with a weight."""
        distinct = self.log10_backoff != 0
        distinct[self.parent[1:]] = True
        history = np.arange(len(self.parent))
        for order in range(1, self.order + 1):
            nodes = np.arange(self.starts[order], self.starts[order + 1])
            history[nodes] = np.where(distinct[nodes], nodes, history[self.suffix[nodes]])
        return history

    def extended(self, parent: Ints, word: Ints, log10_prob: Floats, log10_backoff: Floats) -> Ngrams:
        """This model with n-grams one order longer, given in any order, each once."""
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
    """A model of order 0 over `words`: the empty history alone."""
    return Ngrams(words, [0, 1], np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1), np.zeros(1))
