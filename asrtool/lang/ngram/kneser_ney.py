"""Interpolated modified Kneser-Ney estimation (Chen and Goodman 1998).

Equations 23 to 26 of section 3.2. The count a(g) of an n-gram of the highest order, or of one that begins with
``<s>``, is how often it was seen; of any other, the number of different words seen in front of it. With a(h) the sum
of a(h w) over all words w,

    p(w | h) = (a(h w) - D(a(h w))) / a(h) + gamma(h) p(w | h without its first word)

and at the end of the recursion p(w) of the empty history is the same for each word, ``</s>`` and ``<unk>``. gamma(h)
is the remainder of the first term. An n-gram seen too seldom is left out: all its count goes to gamma(h).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from asrtool.lang.ngram.counts import Counts, count_ngrams, number_words, read_text
from asrtool.lang.ngram.disk_arrays import Column, Scratch, gather, tally
from asrtool.lang.ngram.model import Ints
from asrtool.lang.ngram.trie import BOS_ID, Family, Level, Trie, append_ones, block_rows, families, select

FALLBACK = (0.5, 1.0, 1.5)  # discounts where the text is too small or too artificial to estimate them
Discounts = tuple[float, float, float, float]


def estimate(
    files: Iterable[Path],
    words: Sequence[str] | None,
    order: int,
    min_counts: Sequence[int],
    scratch: Scratch | None = None,
) -> Trie:
    """The model of the sentences in `files`, a sentence a line.

    `words` is the vocabulary, others become ``<unk>``; None takes all words of the text. The rest is as in
    `estimate_text`. Raises AsrtoolError when a file cannot be read.
    """
    scratch = scratch or Scratch()
    ids = number_words(words)
    text = read_text(files, ids, scratch, grow=words is None)
    return estimate_text(text, list(ids), order, min_counts, scratch)


def estimate_text(text: Column, words: list[str], order: int, min_counts: Sequence[int], scratch: Scratch) -> Trie:
    """The model of `text`, as `read_text` returns it, over the vocabulary `words`.

    An n-gram of order k seen less than ``min_counts[k - 1]`` times is left out (the last value holds for higher
    orders); values must not fall. Raises AsrtoolError when the disk is full.
    """
    estimator = _Estimator(words, scratch)
    counts = count_ngrams(text, len(words), order, scratch)
    for k, ngrams in enumerate(counts):
        estimator.add(ngrams, counts[k + 1] if k + 1 < len(counts) else None, min_counts[min(k, len(min_counts) - 1)])
    return estimator.model(counts)


class _Estimator:
    """Probabilities, back-off weights of the order below, and kept rows, by order."""

    def __init__(self, words: list[str], scratch: Scratch) -> None:
        self._words = words
        self._scratch = scratch
        self._block = block_rows(scratch, len(words))
        uniform = np.full(1, 1 / (len(words) - 1))  # every word but <s>
        self._probs = [scratch.column(np.float64, uniform)]
        self._weights: list[Column] = []
        self._keep: list[Column] = []

    def add(self, ngrams: Counts, longer: Counts | None, min_count: int) -> None:
        """Estimate the n-grams of the next order; `longer` is the order after it."""
        order = len(self._probs)
        adjusted, num_seen = self._adjust(ngrams, longer)
        discounts = find_discounts(num_seen)
        lower = self._probs[-1]
        weights, probs = self._scratch.column(np.float64), self._scratch.column(np.float64)
        keep = self._scratch.column(np.bool_)
        num_kept = 0
        for family in families(ngrams.key, len(lower), len(self._words), self._block):
            kept = ngrams.count[family.rows] >= min_count
            below = gather(lower, ngrams.suffix[family.rows], self._block)
            weight, prob = _interpolate(family, adjusted[family.rows], kept, discounts, below)
            weights.append(weight)
            probs.append(prob)
            keep.append(kept | (order == 1))  # a rare word stays, with the probability of a word never seen
            num_kept += int(kept.sum())
        if order == 1:
            probs.put(BOS_ID, np.zeros(1))  # given, not predicted
        logging.info("%d-grams: %d, discounts %.4f %.4f %.4f", order, num_kept, *discounts[1:])
        self._probs.append(probs)
        self._weights.append(weights)
        self._keep.append(keep)

    def _adjust(self, ngrams: Counts, longer: Counts | None) -> tuple[Column, Ints]:
        """a(g) of each n-gram, and how many have 0, 1, ... and 5 or more."""
        adjusted = self._scratch.column()
        num_seen = np.zeros(6, np.int64)
        for start, seen in ngrams.count.blocks(self._block):
            if longer is not None:
                rows = np.arange(start, start + len(seen))
                from_bos = (rows >= ngrams.from_bos.start) & (rows < ngrams.from_bos.stop)
                seen = np.where(from_bos, seen, tally(longer.suffix, start, start + len(seen), self._block))
            if len(self._probs) == 1 and start == 0:
                seen[BOS_ID] = 0
            num_seen += np.bincount(np.minimum(seen, 5), minlength=6)
            adjusted.append(seen)
        return adjusted, num_seen

    def model(self, counts: Sequence[Counts]) -> Trie:
        """The n-grams kept."""
        highest = self._scratch.column(np.float64)
        append_ones(highest, len(self._probs[-1]), self._block)
        columns = zip(counts, self._probs[1:], [*self._weights[1:], highest], strict=True)
        levels = [Level(ngrams.key, ngrams.suffix, prob, weights) for ngrams, prob, weights in columns]
        return select(Trie(self._words, levels, self._scratch), self._keep)


def _interpolate(
    family: Family, adjusted: Ints, kept: np.ndarray, discounts: Discounts, below: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return gamma of each history (1 without n-grams) and all probabilities."""
    taken = np.where(kept, np.asarray(discounts)[np.minimum(adjusted, 3)], adjusted)
    total = family.total(adjusted)
    some = np.where(total > 0, total, 1)
    gamma = np.where(total > 0, family.total(taken) / some, 1)
    return gamma, (adjusted - taken) / some[family.parent] + gamma[family.parent] * below


def find_discounts(num_seen: Ints) -> Discounts:
    """Return D(0) to D(3), the last for counts of 3 and more (equation 26).

    ``num_seen[j]`` n-grams have count j. If counts of 1, 2 or 3 are missing, or a discount is not between 0 and its
    count, they are FALLBACK.
    """
    if num_seen[1:4].all():
        y = num_seen[1] / (num_seen[1] + 2 * num_seen[2])
        found = [float(j - (j + 1) * y * num_seen[j + 1] / num_seen[j]) for j in (1, 2, 3)]
        if all(0 < discount <= j for j, discount in enumerate(found, 1)):
            return (0.0, found[0], found[1], found[2])
    return (0.0, *FALLBACK)
