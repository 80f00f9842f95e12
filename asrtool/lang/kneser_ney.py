"""Interpolated modified Kneser-Ney estimation (Chen and Goodman 1998, section 3.2 and equations 23 to 26).

The count a(g) of an n-gram of the highest order, or of one that begins with ``<s>``, is how often it was seen; that of
any other is the number of different words seen in front of it. With a(h) the sum of a(h w) over all words w,

    p(w | h) = (a(h w) - D(a(h w))) / a(h) + gamma(h) p(w | h without its first word)

and at the end of the recursion p(w) of the empty history is the same for each word, ``</s>`` and ``<unk>``.
gamma(h) is what the first term leaves. An n-gram seen too seldom is left out: all its count goes to gamma(h).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from asrtool.lang.ngram import Floats, Ints, Ngrams
from asrtool.lang.ngram_count import BOS_ID, Counts, count_ngrams, read_text

FALLBACK = (0.5, 1.0, 1.5)  # discounts where the text is too small or too artificial to estimate them
LOG10_ZERO = -99.0  # how ARPA files write that <s> is never predicted


def estimate(files: Iterable[Path], words: Sequence[str] | None, order: int, min_counts: Sequence[int]) -> Ngrams:
    """The model of the sentences in `files`, a sentence a line.

    `words` is the vocabulary, others become ``<unk>``; None takes all words of the text. An n-gram of order k seen
    less than ``min_counts[k - 1]`` times is left out (the last value holds for higher orders); values must not fall.
    Raises AsrtoolError when a file cannot be read.
    """
    text, vocabulary = read_text(files, words)
    counts = count_ngrams(text, len(vocabulary), order)
    counts = [count for count in counts if len(count.word)]
    thresholds = [min_counts[min(k, len(min_counts) - 1)] for k in range(len(counts))]
    return _estimate(counts, vocabulary, thresholds)


def _estimate(counts: Sequence[Counts], vocabulary: list[str], thresholds: Sequence[int]) -> Ngrams:
    num_nodes = counts[-1].first + len(counts[-1].word)
    prob = np.zeros(num_nodes)
    prob[0] = 1 / (len(vocabulary) - 1)  # every word but <s>
    backoff = np.ones(num_nodes)
    kept = np.ones(num_nodes, dtype=bool)
    for k, ngrams in enumerate(counts):
        span = slice(ngrams.first, ngrams.first + len(ngrams.word))
        adjusted = _adjust(ngrams, counts[k + 1] if k + 1 < len(counts) else None)
        keep = ngrams.count >= thresholds[k]
        discounts = find_discounts(adjusted)
        logging.info("%d-grams: %d, discounts %.4f %.4f %.4f", k + 1, keep.sum(), *discounts[1:])
        taken = np.where(keep, np.asarray(discounts)[np.minimum(adjusted, 3)], adjusted)
        total = np.bincount(ngrams.parent, adjusted, minlength=ngrams.first)
        gamma = np.bincount(ngrams.parent, taken, minlength=ngrams.first) / np.where(total > 0, total, 1)
        parents = total > 0
        backoff[: ngrams.first][parents] = gamma[parents]
        prob[span] = (adjusted - taken) / total[ngrams.parent] + gamma[ngrams.parent] * prob[ngrams.suffix]
        kept[span] = keep | (k == 0)
    return _select(counts, vocabulary, prob, backoff, kept)


def _adjust(ngrams: Counts, longer: Counts | None) -> Ints:
    """a(g) of each n-gram; `longer` are those of the next order."""
    if longer is None:
        adjusted = ngrams.count
    else:
        num_before = np.bincount(longer.suffix - ngrams.first, minlength=len(ngrams.word))
        adjusted = np.where(ngrams.from_bos, ngrams.count, num_before)
    is_bos = (ngrams.parent == 0) & (ngrams.word == BOS_ID)
    return np.where(is_bos, 0, adjusted)  # <s> is given, not predicted


def find_discounts(adjusted: Ints) -> tuple[float, float, float, float]:
    """D(0) to D(3), the last for all counts of 3 and more (equation 26).

    Where counts of 1, 2 or 3 are missing or a discount is not between 0 and its count, they are FALLBACK.
    """
    num = np.bincount(np.minimum(adjusted, 5), minlength=6)
    if num[1:4].all():
        y = num[1] / (num[1] + 2 * num[2])
        found = [float(j - (j + 1) * y * num[j + 1] / num[j]) for j in (1, 2, 3)]
        if all(0 < discount <= j for j, discount in enumerate(found, 1)):
            return (0.0, found[0], found[1], found[2])
    return (0.0, *FALLBACK)


def _select(counts: Sequence[Counts], vocabulary: list[str], prob: Floats, backoff: Floats, kept: np.ndarray) -> Ngrams:
    """The model of the n-grams kept."""
    new_node = np.cumsum(kept) - 1
    starts = [0, 1]
    for ngrams in counts:
        starts.append(starts[-1] + int(kept[ngrams.first : ngrams.first + len(ngrams.word)].sum()))
    parent = np.concatenate([[0], *(ngrams.parent for ngrams in counts)])[kept]
    word = np.concatenate([[0], *(ngrams.word for ngrams in counts)])[kept]
    log10_prob, log10_backoff = np.log10(prob[kept]), np.log10(backoff[kept])
    log10_prob[0] = log10_backoff[0] = 0.0  # the empty history is no n-gram
    log10_prob[1 + BOS_ID] = LOG10_ZERO
    return Ngrams(vocabulary, starts, new_node[parent], word, log10_prob, log10_backoff)
