"""Sentences as a tree: what begins alike is there once.

Letters in names: N sentences, T words of the longest one, R nodes of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class WordTree:
    """Prefix tree of sentences: a node for each distinct prefix, shorter ones first.

    Node 0 is the empty prefix. Nodes of `depth` words are ``starts[depth]`` up to ``starts[depth + 1]``.
    """

    word_R: np.ndarray  # the last word, int64; of the empty beginning what stands before every sentence
    parent_R: np.ndarray  # the node without the last word, int64; of the empty beginning itself
    starts: list[int]
    last_N: np.ndarray  # the node of each sentence, int64

    def levels(self) -> Iterator[slice]:
        """The nodes of no word, of one word, and so on."""
        return map(slice, self.starts, self.starts[1:])

    def leaves(self) -> np.ndarray:
        """The nodes that are the beginning of no other."""
        is_leaf_R = np.ones(len(self.parent_R), dtype=bool)
        is_leaf_R[self.parent_R[1:]] = False
        return np.flatnonzero(is_leaf_R)


def make_word_tree(sentences: Sequence[Sequence[int]], edge: int) -> WordTree:
    """The tree of sentences of word numbers; `edge` stands before each of them."""
    lens_N = np.array([len(words) for words in sentences])
    words_NT = np.full((len(sentences), lens_N.max()), -1, dtype=np.int64)
    words_NT[np.arange(words_NT.shape[1]) < lens_N[:, None]] = [word for words in sentences for word in words]
    order_N = np.lexsort(words_NT.T[::-1]) if words_NT.shape[1] else np.arange(len(sentences))
    sorted_NT = words_NT[order_N]
    # Beginnings that are alike are neighbours now, so one that differs from that of the row above is new.
    new_NT = np.ones_like(sorted_NT, dtype=bool)
    new_NT[1:] = np.logical_or.accumulate(sorted_NT[1:] != sorted_NT[:-1], axis=1)
    new_NT &= sorted_NT >= 0
    starts = np.cumsum([0, 1, *new_NT.sum(axis=0)]).tolist()
    node_NT = np.zeros((len(sentences), 1 + words_NT.shape[1]), dtype=np.int64)
    node_NT[:, 1:] = np.cumsum(new_NT, axis=0) - 1 + np.array(starts[1:-1], dtype=np.int64)
    last_N = np.empty(len(sentences), dtype=np.int64)
    last_N[order_N] = node_NT[np.arange(len(sentences)), lens_N[order_N]]
    return WordTree(np.append(edge, sorted_NT.T[new_NT.T]), np.append(0, node_NT[:, :-1].T[new_NT.T]), starts, last_N)
