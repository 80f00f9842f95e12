"""Encode the texts of a set; each word is encoded once.

Letters in names: N utterances, L lines of the transcripts, M items of which some are taken.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from asrtool.data.storage.transcripts import TextColumns
from asrtool.errors import AsrtoolError
from asrtool.models.objectives.targets import Targets

Encode = Callable[[str], list[int]]  # text -> tokens of its words in order
PIECE = 2**16  # texts at a time


def find_lines(keys_N: np.ndarray, keys_L: np.ndarray) -> np.ndarray:
    """Return the text line of each utterance, (N,) int32, by its key; -1 for none.

    Utterances in the order of the lines need no search, which takes seconds for seven million.
    """
    lines_N = np.arange(len(keys_N), dtype=np.int32) % len(keys_L)
    others = np.flatnonzero(keys_L[lines_N] != keys_N)
    if len(others):
        order, wanted = np.argsort(keys_L, kind="stable"), keys_N[others]
        known = keys_L[order]
        lines = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        lines_N[others] = np.where(known[lines] == wanted, order[lines], -1)
    return lines_N


class Encoder:
    """Encoder of texts by their words."""

    def __init__(self, texts: TextColumns, encode: Encode) -> None:
        self._texts = texts
        self._encode = encode
        self._failed: list[int] = []  # words that have no tokens
        self._word_tokens = Targets.of([self._encode_word(number) for number in range(len(texts.vocabulary))])

    def _encode_word(self, number: int) -> list[int]:
        try:
            return self._encode(self._texts.vocabulary[number])
        except AsrtoolError:
            self._failed.append(number)
            return []

    def failed(self, lines_N: np.ndarray) -> np.ndarray:
        """Return a mask of utterances with a text but without tokens, (N,) bool."""
        if not self._failed:
            return np.zeros(len(lines_N), bool)
        fails = np.isin(self._texts.words, self._failed)
        fails_L = np.logical_or.reduceat(fails, self._texts.ends[:-1].astype(np.int64))
        return np.asarray((lines_N >= 0) & fails_L[lines_N])

    def targets(self, lines_M: np.ndarray) -> Targets:
        """Return the tokens of the texts of some lines, in 16 bits if possible."""
        texts, word_tokens = self._texts, self._word_tokens
        kind = np.uint16 if word_tokens.values.max(initial=0) < 2**16 else np.uint32
        values, word_lens = word_tokens.values.astype(kind), word_tokens.lens
        tokens, lens = [np.empty(0, kind)], [np.zeros(1, np.int64)]
        for begin in range(0, len(lines_M), PIECE):
            lines = lines_M[begin : begin + PIECE]
            begins = texts.ends[lines].astype(np.int64)
            num_words = texts.ends[lines + 1].astype(np.int64) - begins
            words = texts.words[spread(begins, num_words)]
            tokens.append(values[spread(word_tokens.ends[words].astype(np.int64), word_lens[words])])
            lens.append(np.add.reduceat(word_lens[words], np.cumsum(num_words) - num_words))
        return Targets(np.concatenate(tokens), np.cumsum(np.concatenate(lens)).astype(np.uint64))


def spread(begins_M: np.ndarray, lens_M: np.ndarray) -> np.ndarray:
    """Return the positions of the elements of items that start at `begins_M`."""
    ends_M = np.cumsum(lens_M)
    return np.arange(ends_M[-1]) + np.repeat(begins_M - ends_M + lens_M, lens_M)
