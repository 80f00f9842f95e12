"""Count n-grams and estimate modified Kneser-Ney models (Chen and Goodman 1998).

Blocks of text are sorted and merged; counts do not depend on the size of the blocks.

Estimation is interpolated, by equations 23 to 26 of section 3.2. The count a(g) of an n-gram of the highest order, or
of one that begins with ``<s>``, is how often it was seen; of any other, the number of different words seen in front
of it. With a(h) the sum of a(h w) over all words w,

    p(w | h) = (a(h w) - D(a(h w))) / a(h) + gamma(h) p(w | h without its first word)

and at the end of the recursion p(w) of the empty history is the same for each word, ``</s>`` and ``<unk>``. gamma(h)
is the remainder of the first term. An n-gram seen too seldom is left out: all its count goes to gamma(h).
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.lang.ngram.disk_arrays import Column, Scratch, gather, merge, tally
from asrtool.lang.ngram.model import Ints
from asrtool.lang.ngram.trie import (
    BOS_ID,
    EOS_ID,
    UNK_ID,
    Family,
    Level,
    Trie,
    append_ones,
    block_rows,
    families,
    select,
)
from asrtool.lang.text import BACKOFF, BOS, EOS, EPSILON, UNK, count_sentences, number_sentences
from asrtool.log import progress

NO_WORDS = frozenset((BOS, EOS, EPSILON, BACKOFF))  # symbols of models and graphs that no text may hold
FALLBACK = (0.5, 1.0, 1.5)  # discounts where the text is too small or too artificial to estimate them
Discounts = tuple[float, float, float, float]


@dataclass(frozen=True)
class Counts:
    """N-grams of one order, with `key` and `suffix` as in a `Level`, and counts.

    `from_bos` are the rows that begin with ``<s>``.
    """

    key: Column
    suffix: Column
    count: Column
    from_bos: slice


def number_words(words: Sequence[str] | None) -> dict[str, int]:
    """The vocabulary with the number of each word; None is one without words so far."""
    ids = {UNK: UNK_ID, BOS: BOS_ID, EOS: EOS_ID}
    for word in words or ():
        if word not in (EPSILON, BACKOFF):
            ids.setdefault(word, len(ids))
    return ids


def read_text(files: Iterable[Path], ids: dict[str, int], scratch: Scratch, grow: bool = False) -> Column:
    """All sentences as one column of word ids, each as ``<s> ... </s>``.

    Words that `ids` lacks become ``<unk>``, or with `grow` are added to it. Raises AsrtoolError for a file that cannot
    be read and for one of NO_WORDS in the text, with its line.
    """
    text = scratch.column(np.int32)
    buffer = array("i")
    number_of = _Numbers(ids, grow).__getitem__
    for file in files:
        for line, sentence in progress(number_sentences(file), str(file), count_sentences(file), "sentence"):
            try:
                numbers = [*map(number_of, sentence)]
            except ValueError as error:
                raise AsrtoolError(f"{file}:{line}: {error}", "remove it, every line is a sentence") from error
            buffer.append(BOS_ID)
            buffer.extend(numbers)
            buffer.append(EOS_ID)
            if len(buffer) >= scratch.block:
                text.append(np.array(buffer))
                del buffer[:]
    text.append(np.array(buffer))
    return text


class _Numbers(dict[str, int]):
    """Numbers of the words `ids`; new words become ``<unk>``, or grow `ids`."""

    def __init__(self, ids: dict[str, int], grow: bool) -> None:
        super().__init__((word, number) for word, number in ids.items() if word not in NO_WORDS)
        self._ids = ids
        self._grow = grow

    def __missing__(self, word: str) -> int:
        """Raise ValueError for one of NO_WORDS."""
        if word in NO_WORDS:
            raise ValueError(f"holds {word} as a word")
        if not self._grow:
            return UNK_ID
        self[word] = number = self._ids.setdefault(word, len(self._ids))
        return number


def count_ngrams(text: Column, num_words: int, order: int, scratch: Scratch) -> list[Counts]:
    """Count the n-grams of length 1 to `order` in `text` (as `read_text` returns it).

    Every word of the vocabulary is a unigram, seen or not. Orders that no sentence is long enough for are missing.
    """
    counts = [_count_words(text, num_words, scratch)]
    rows_at = text  # for each position of `text` the row of the n-gram that begins there, -1 for none
    for length in range(2, order + 1):
        runs = _Runs(scratch, num_words)
        for start in range(0, len(text), scratch.block):
            stop = min(start + scratch.block, len(text))
            runs.add(rows_at[start : stop + 1].astype(np.int64), text[start : stop + length - 1], stop - start, length)
        if not len(runs.key):
            break
        counts.append(runs.merge(counts[-1].from_bos))
        rows_at = runs.rows_at()
    return counts


def _count_words(text: Column, num_words: int, scratch: Scratch) -> Counts:
    count = np.zeros(num_words, np.int64)
    for _, words in text.blocks(scratch.block):
        count += np.bincount(words, minlength=num_words)
    key = scratch.column(values=np.arange(num_words))
    suffix = scratch.column(values=np.zeros(num_words, np.int64))
    return Counts(key, suffix, scratch.column(values=count), slice(BOS_ID, BOS_ID + 1))


class _Runs:
    """Sorted n-grams of one order, one run a block of text, one after another."""

    def __init__(self, scratch: Scratch, num_words: int) -> None:
        self._scratch = scratch
        self._num_words = num_words
        self._bounds = [0]
        self.key = scratch.column()
        self._suffix = scratch.column()
        self._count = scratch.column()
        self._row = scratch.column()  # of each n-gram of a run in the merged order
        self._where = scratch.column(np.int32)  # for each position of the text the n-gram of its run, -1 for none

    def add(self, rows: Ints, words: Ints, num: int, length: int) -> None:
        """Count the n-grams that begin at the first `num` positions of a block.

        `rows` are the n-grams one word shorter at these positions and the next, -1 for none; `words` is the text from
        the first position to the end of the last n-gram.
        """
        begin = np.flatnonzero(rows[:num] >= 0)
        begin = begin[words[begin + length - 2] != EOS_ID]  # the sentence continues
        key = rows[begin] * self._num_words + words[begin + length - 1]
        by_key = np.argsort(key)
        key, begin = key[by_key], begin[by_key]
        is_new = np.diff(key, prepend=-1) != 0
        first = np.flatnonzero(is_new)
        where = np.full(num, -1, np.int32)
        where[begin] = np.cumsum(is_new) - 1
        self.key.append(key[first])
        self._suffix.append(rows[begin[first] + 1])
        self._count.append(np.diff(first, append=len(key)))
        self._where.append(where)
        self._bounds.append(len(self.key))

    def merge(self, shorter_from_bos: slice) -> Counts:
        """The n-grams of all runs."""
        scratch = self._scratch
        key, suffix, count = scratch.column(), scratch.column(), scratch.column()
        bos_keys = np.array([shorter_from_bos.start, shorter_from_bos.stop]) * self._num_words
        from_bos = np.zeros(2, np.int64)
        for keys, parts in merge(self.key, self._bounds, scratch.block):
            suffixes, counts = np.empty_like(keys), np.zeros_like(keys)
            for part, at in parts:
                suffixes[at] = self._suffix[part]
                counts[at] += self._count[part]
                self._row.put(part.start, len(key) + at)
            from_bos += np.searchsorted(keys, bos_keys)
            key.append(keys)
            suffix.append(suffixes)
            count.append(counts)
        return Counts(key, suffix, count, slice(int(from_bos[0]), int(from_bos[1])))

    def rows_at(self) -> Column:
        """Return the merged row of the n-gram at each position of the text, or -1."""
        rows_at = self._scratch.column()
        for run, (_, where) in enumerate(self._where.blocks(self._scratch.block)):
            row = np.append(self._row[self._bounds[run] : self._bounds[run + 1]], -1)
            rows_at.append(row[where])  # -1 is the last one
        return rows_at


def estimate(text: Column, words: list[str], order: int, min_counts: Sequence[int], scratch: Scratch) -> Trie:
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
