"""Encode the texts of a set; each word is encoded once.

Letters in names: N utterances, L lines of the transcripts, M items of which some are taken.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from asrtool.data.storage.transcripts import TextColumns
from asrtool.errors import AsrtoolError
from asrtool.models.objectives.targets import Targets

Encode = Callable[[str], list[int]]  # a text to its tokens, which are those of its words, one behind the other
PIECE = 2**16  # texts at a time
BLOCK = 2**12  # utterances whose texts are looked for at a time


def find_lines(keys_N: np.ndarray, keys_L: np.ndarray) -> np.ndarray:
    """Return the text line of each utterance, (N,) int32, by its key; -1 for none.

    The expected order is tried first: searching seven million keys takes seconds.
    """
    lines_N = np.empty(len(keys_N), np.int32)
    search, behind = _Search(keys_L), 0
    for begin in range(0, len(keys_N), BLOCK):
        keys = keys_N[begin : begin + BLOCK]
        lines = np.arange(behind, behind + len(keys)) % len(keys_L)
        others = np.flatnonzero(keys_L[lines] != keys)
        if len(others):
            lines[others] = search.find(keys[others])
        lines_N[begin : begin + BLOCK] = lines
        behind = int(lines[-1]) + 1
    return lines_N


class _Search:
    """Search of keys in any order."""

    def __init__(self, keys_L: np.ndarray) -> None:
        self._keys_L = keys_L

    @functools.cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self._keys_L, kind="stable")
        return order, self._keys_L[order]

    def find(self, keys_M: np.ndarray) -> np.ndarray:
        """Return the positions of the known keys, (M,) int64, and -1 for others."""
        order, known = self._sorted
        places = np.minimum(np.searchsorted(known, keys_M), len(known) - 1)
        return np.where(known[places] == keys_M, order[places], -1)


class Encoder:
    """Encoder of texts by their words."""

    def __init__(self, texts: TextColumns, encode: Encode) -> None:
        self._texts = texts
        self._encode = encode
        self._failed: list[int] = []  # words that have no tokens
        self._of_words = Targets.of([self._of_word(number) for number in range(len(texts.vocabulary))])

    def _of_word(self, number: int) -> list[int]:
        try:
            return self._encode(self._texts.vocabulary[number])
        except AsrtoolError:
            self._failed.append(number)
            return []

    def failed(self, lines_N: np.ndarray) -> np.ndarray:
        """Return which utterances with a text have no tokens, (N,) bool."""
        if not self._failed:
            return np.zeros(len(lines_N), bool)
        fails = np.isin(self._texts.words, self._failed)
        fails_L = np.logical_or.reduceat(fails, self._texts.ends[:-1].astype(np.int64))
        return np.asarray((lines_N >= 0) & fails_L[lines_N])

    def targets(self, lines_M: np.ndarray) -> Targets:
        """Return the tokens of the texts of some lines, in 16 bits if possible."""
        texts, of_words = self._texts, self._of_words
        kind = np.uint16 if of_words.values.max(initial=0) < 2**16 else np.uint32
        values, lens_of_words = of_words.values.astype(kind), of_words.lens
        tokens, lens = [np.empty(0, kind)], [np.zeros(1, np.int64)]
        for begin in range(0, len(lines_M), PIECE):
            lines = lines_M[begin : begin + PIECE]
            begins = texts.ends[lines].astype(np.int64)
            num_words = texts.ends[lines + 1].astype(np.int64) - begins
            words = texts.words[spread(begins, num_words)]
            tokens.append(values[spread(of_words.ends[words].astype(np.int64), lens_of_words[words])])
            lens.append(np.add.reduceat(lens_of_words[words], np.cumsum(num_words) - num_words))
        return Targets(np.concatenate(tokens), np.cumsum(np.concatenate(lens)).astype(np.uint64))


def spread(begins_M: np.ndarray, lens_M: np.ndarray) -> np.ndarray:
    """Return the positions of the elements of items that start at `begins_M`."""
    ends_M = np.cumsum(lens_M)
    return np.arange(ends_M[-1]) + np.repeat(begins_M - ends_M + lens_M, lens_M)
