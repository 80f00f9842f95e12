"""Count n-grams and estimate modified Kneser-Ney models (Chen and Goodman 1998).

Estimation is interpolated, by equations 23 to 26 of section 3.2. The count a(g) of an n-gram of the highest order, or
of one that begins with ``<s>``, is how often it was seen; of any other, the number of different words seen in front
of it. With a(h) the sum of a(h w) over all words w,

    p(w | h) = (a(h w) - D(a(h w))) / a(h) + gamma(h) p(w | h without its first word)

and at the end of the recursion p(w) of the empty history is the same for each word, ``</s>`` and ``<unk>``. gamma(h)
is the remainder of the first term. An n-gram seen too seldom is left out: all its count goes to gamma(h).
"""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.lang.ngram.model import Floats, Ints
from asrtool.lang.ngram.trie import BOS_ID, EOS_ID, MAX_INT, UNK_ID, Level, Rows, Trie, find, keys_of, order_of, select
from asrtool.lang.text import BACKOFF, BOS, EOS, EPSILON, UNK, read_blocks

NO_WORDS = frozenset((BOS, EOS, EPSILON, BACKOFF))  # symbols of models and graphs that no text may hold
FALLBACK = (0.5, 1.0, 1.5)  # discounts if the text is too small or too artificial to estimate them
Discounts = tuple[float, float, float, float]


@dataclass(frozen=True)
class Counts:
    """N-grams of one order, as in a `Level`, and their counts.

    Rows `from_bos` begin with ``<s>``.
    """

    parent: Rows
    word: Rows
    suffix: Rows
    count: Ints
    from_bos: slice


def number_words(words: Sequence[str] | None) -> dict[str, int]:
    """Return the vocabulary, word to number, which numbers keys that it lacks.

    None is one without words so far.
    """
    ids: defaultdict[str, int] = defaultdict(None, {UNK: UNK_ID, BOS: BOS_ID, EOS: EOS_ID})
    ids.default_factory = ids.__len__
    for word in words or ():
        if word not in (EPSILON, BACKOFF):
            ids.setdefault(word, len(ids))
    return ids


def read_text(files: Iterable[Path], ids: dict[str, int], grow: bool = False) -> Rows:
    """Read all sentences as one array of word numbers, each as ``<s> ... </s>``.

    Words that `ids`, of number_words, lacks become ``<unk>``, or with `grow` are added. Raises AsrtoolError for a file
    that cannot be read and for one of NO_WORDS in the text, with its line.
    """
    parts = []
    for file in files:
        num_sentences = 0
        for first, block in read_blocks(file):
            if any(symbol in block for symbol in NO_WORDS):
                _check_words(file, first, block)
            words = f"{block.rstrip()}\n".replace("\n", f" {EOS} ").split()
            found = map(ids.__getitem__, words) if grow else map(ids.get, words, itertools.repeat(UNK_ID))
            numbers = np.fromiter(found, np.int32, len(words))
            numbers = numbers[(numbers != EOS_ID) | np.append(False, numbers[:-1] != EOS_ID)]  # without empty lines
            starts = np.append(0, np.flatnonzero(numbers == EOS_ID) + 1)[:-1]
            parts.append(np.insert(numbers, starts, BOS_ID))
            num_sentences += len(starts)
        logging.info("%s: %d sentences", file, num_sentences)
    return np.concatenate(parts)


def _check_words(file: Path, first: int, block: str) -> None:
    """Raise AsrtoolError if one of NO_WORDS is a word of `block`.

    Its first line has the number `first`.
    """
    for number, line in enumerate(block.split("\n"), first):
        for symbol in NO_WORDS.intersection(line.split()):
            raise AsrtoolError(f"{file}:{number}: holds {symbol} as a word", "remove it, every line is a sentence")


def count_ngrams(text: Rows, num_words: int, order: int) -> list[Counts]:
    """Count the n-grams of length 1 to `order` in `text` (as `read_text` returns it).

    Every word of the vocabulary is a unigram, seen or not. Orders that no sentence is long enough for are missing.
    """
    words, none = np.arange(num_words, dtype=np.int32), np.zeros(num_words, np.int32)
    levels = [Counts(none, words, none, np.bincount(text, minlength=num_words), slice(BOS_ID, BOS_ID + 1))]
    columns, times = _distinct(text, num_words, order)
    del text  # it takes as much memory as the n-grams
    row = columns[0]  # row of the n-gram so far in its level
    while len(columns) > 1:
        longer = columns[0] != EOS_ID  # the sentence continues
        row, times, columns = row[longer], times[longer], [column[longer] for column in columns[1:]]
        if not len(row):
            break
        is_new = _starts(row) | _starts(columns[0])
        first, lower = np.flatnonzero(is_new), levels[-1]
        parent, word = row[first], columns[0][first]
        shorter = keys_of(lower.parent, lower.word, num_words)
        suffix = find(shorter, keys_of(lower.suffix[parent], word, num_words))
        start, stop = np.searchsorted(parent, [lower.from_bos.start, lower.from_bos.stop]).tolist()
        levels.append(Counts(parent, word, suffix, np.add.reduceat(times, first), slice(start, stop)))
        row = (np.cumsum(is_new) - 1).astype(np.int32)
    return levels


def _distinct(text: Rows, num_words: int, order: int) -> tuple[list[Rows], Rows]:
    """Return the distinct n-grams of length `order`, and their counts.

    They are sorted, and have a column for each word. One begins at each position; after ``</s>`` it has zeros.
    """
    codes, num_codes = text.astype(np.int64), num_words  # an n-gram as one number
    ranked: dict[int, Ints] = {}  # by length, codes that were replaced by their ranks, to leave room for more words
    goes_on, word = text != EOS_ID, np.empty_like(text)
    for length in range(1, order):
        if length > 1 and num_codes * num_words ** (order - length) > MAX_INT:
            by_code = order_of(codes)
            is_new = _starts(codes[by_code])
            ranked[length] = codes[by_code[is_new]]
            codes[by_code] = np.cumsum(is_new) - 1
            num_codes = len(ranked[length])
        np.concatenate([text[length:], text[:length]], out=word)
        word *= goes_on
        goes_on &= word != EOS_ID
        codes *= num_words
        codes += word
        num_codes *= num_words
    del word
    codes.sort()
    first = np.flatnonzero(_starts(codes))
    times, codes = np.diff(first, append=len(codes)).astype(np.int32), codes[first]
    columns: list[Rows] = []
    for length in range(order - 1, 0, -1):
        codes, word = np.divmod(codes, num_words)
        columns.insert(0, word.astype(np.int32))
        codes = ranked[length][codes] if length in ranked else codes
    return [codes.astype(np.int32), *columns], times


def _starts(values: Ints | Rows) -> np.ndarray:
    """Mark each value that differs from the one before."""
    return np.append(True, values[1:] != values[:-1])


def estimate(counts: Sequence[Counts], words: list[str], min_counts: Sequence[int]) -> Trie:
    """Return the model of `counts`, of count_ngrams, over the vocabulary `words`.

    An n-gram of order k seen less than ``min_counts[k - 1]`` times is left out (the last value holds for higher
    orders); values must not fall.
    """
    below = np.full(1, 1 / (len(words) - 1))  # every word but <s>
    probs, weights, keep = [], [], []
    for k, ngrams in enumerate(counts):
        adjusted = ngrams.count
        if k + 1 < len(counts):
            adjusted = np.bincount(counts[k + 1].suffix, minlength=len(ngrams.word))
            adjusted[ngrams.from_bos] = ngrams.count[ngrams.from_bos]
        if k == 0:
            adjusted[BOS_ID] = 0
        kept = ngrams.count >= min_counts[min(k, len(min_counts) - 1)]
        discounts = find_discounts(np.bincount(np.minimum(adjusted, 5), minlength=6))
        logging.info("%d-grams: %d, discounts %.4f %.4f %.4f", k + 1, kept.sum(), *discounts[1:])
        weight, below = _interpolate(ngrams, adjusted, kept, discounts, below)
        if k == 0:
            below[BOS_ID] = 0  # given, not predicted
            kept[:] = True  # a rare word stays, with the probability of a word never seen
        probs.append(below)
        weights.append(weight)
        keep.append(kept)
    weights.append(np.broadcast_to(1.0, len(below)))
    parts = zip(counts, probs, weights[1:], strict=True)
    return select(Trie(words, [Level(each.parent, each.word, each.suffix, *of) for each, *of in parts]), keep)


def _interpolate(
    ngrams: Counts, adjusted: Ints, kept: np.ndarray, discounts: Discounts, below: Floats
) -> tuple[Floats, Floats]:
    """Return gamma of each history (1 without n-grams) and all probabilities."""
    taken = np.asarray(discounts)[np.minimum(adjusted, 3)]
    taken[~kept] = adjusted[~kept]
    total = np.bincount(ngrams.parent, adjusted, minlength=len(below))
    some = np.where(total > 0, total, 1)
    gamma = np.where(total > 0, np.bincount(ngrams.parent, taken, minlength=len(below)) / some, 1)
    probs = np.subtract(adjusted, taken, out=taken)  # in place: these arrays are the largest of all
    probs /= some[ngrams.parent]
    probs += gamma[ngrams.parent] * below[ngrams.suffix]
    return gamma, probs


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
