"""Count n-grams and estimate modified Kneser-Ney models (Chen and Goodman 1998).

Estimation is interpolated, by equations 23 to 26 of section 3.2. The count a(g) of an n-gram of the highest order, or
of one that begins with ``<s>``, is how often it was seen; of any other, the number of different words seen in front
of it. With a(h) the sum of a(h w) over all words w,

    p(w | h) = (a(h w) - D(a(h w))) / a(h) + gamma(h) p(w | h without its first word)

and at the end of the recursion p(w) of the empty history is the same for each word, ``</s>`` and ``<unk>``. gamma(h)
is the remainder of the first term. An n-gram seen too seldom is left out: all its count goes to gamma(h).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.lang.ngram.model import Floats, Ints
from asrtool.lang.ngram.trie import (
    BOS_ID,
    EOS_ID,
    UNK_ID,
    Grams,
    Level,
    Rows,
    Trie,
    map_file,
    order_of,
    release,
    select,
    shorten,
)
from asrtool.lang.text import BACKOFF, BOS, EOS, EPSILON, UNK, read_blocks

NO_WORDS = frozenset((BOS, EOS, EPSILON, BACKOFF))  # symbols of models and graphs that no text may hold
FALLBACK = (0.5, 1.0, 1.5)  # discounts if the text is too small or too artificial to estimate them
MIN_PART = 2**18  # words of the text, or n-grams, in one step
MAX_PARTS = 24  # of the text, to count n-grams
Discounts = tuple[float, float, float, float]


@dataclass(frozen=True)
class Counts(Grams):
    """N-grams of one order and their counts.

    Rows `from_bos` begin with ``<s>``.
    """

    count: Rows
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
    text = np.empty(0, np.int32)
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
            end = len(text)
            text.resize(end + len(numbers) + len(starts), refcheck=False)
            text[end:] = np.insert(numbers, starts, BOS_ID)
            num_sentences += len(starts)
        logging.info("%s: %d sentences", file, num_sentences)
    return text


def _check_words(file: Path, first: int, block: str) -> None:
    """Raise AsrtoolError if one of NO_WORDS is a word of `block`.

    Its first line has the number `first`.
    """
    for number, line in enumerate(block.split("\n"), first):
        for symbol in NO_WORDS.intersection(line.split()):
            raise AsrtoolError(f"{file}:{number}: holds {symbol} as a word", "remove it, every line is a sentence")


def count_ngrams(text: Rows, num_words: int, order: int, folder: Path | None = None) -> list[Counts]:
    """Count the n-grams of length 1 to `order` in `text` (as `read_text` returns it).

    Every word of the vocabulary is a unigram, seen or not. Orders that no sentence is long enough for are missing.
    Longer n-grams are in temporary files of `folder`, or of the system's; OSError if the disk is full.
    """
    count = np.zeros(num_words, np.int32)
    size = max(MIN_PART, len(text) // MAX_PARTS)
    for start in range(0, len(text), size):
        count += np.bincount(text[start : start + size], minlength=num_words).astype(np.int32)
    # N-grams that begin with the same word are counted in one part of about `size` positions.
    ends = np.flatnonzero(np.diff(np.cumsum(count, dtype=np.int64) // size, prepend=0)) + 1
    levels = [Counts(np.zeros_like(count), np.arange(num_words, dtype=np.int32), count, slice(BOS_ID, BOS_ID + 1))]
    num_ngrams = [0] * (order - 1)
    with contextlib.ExitStack() as stack:
        files = [[stack.enter_context(TemporaryFile(dir=folder)) for _ in range(3)] for _ in num_ngrams]
        for first, end in itertools.pairwise([0, *ends.tolist(), num_words]):
            _count_part(text, first, end, num_words, files, num_ngrams)
        for columns in files[: np.count_nonzero(num_ngrams)]:
            parent, word, count = (map_file(column, np.int32) for column in columns)
            below = levels[-1].from_bos
            from_bos = np.searchsorted(parent, np.array([below.start, below.stop], np.int32))
            levels.append(Counts(parent, word, count, slice(*from_bos.tolist())))
    return levels


def _count_part(
    text: Rows, first: int, end: int, num_words: int, files: Sequence[Sequence[IO[bytes]]], num_ngrams: list[int]
) -> None:
    """Count the n-grams that begin with the words `first` to ``end - 1``.

    Appends parents, words and counts to `files` by length, where `num_ngrams` of each are already.
    """
    found = []
    for start in range(0, len(text), MIN_PART):
        numbers = (text[start : start + MIN_PART] - first).view(np.uint32)  # those below `first` are large
        found.append(start + np.flatnonzero(numbers < end - first))
    at = np.concatenate(found)
    del found  # frees its memory, as below
    keys = text[at] - np.int64(first)
    num_before = first
    for k, (parents, words, counts) in enumerate(files):
        continues = text[at] != EOS_ID
        at, keys = at[continues] + 1, keys[continues]
        if not len(at):
            break
        keys *= num_words
        keys += text[at]
        by_key = order_of(keys)
        at = at[by_key]
        keys = keys[by_key]
        del by_key
        is_new = np.append(True, keys[1:] != keys[:-1])
        starts = np.flatnonzero(is_new)
        codes = keys[starts]
        parent = codes // num_words
        parents.write((parent + num_before).astype(np.int32).data)
        words.write((codes - parent * num_words).astype(np.int32).data)
        del codes, parent
        counts.write(np.diff(starts, append=len(keys)).astype(np.int32).data)
        keys = np.cumsum(is_new) - 1
        num_before = num_ngrams[k]
        num_ngrams[k] += len(starts)


def estimate(counts: list[Counts], words: list[str], min_counts: Sequence[int], folder: Path | None = None) -> Trie:
    """Return the model of `counts`, of count_ngrams, over the vocabulary `words`.

    An n-gram of order k seen less than ``min_counts[k - 1]`` times is left out (the last value holds for higher
    orders); values must not fall. `counts` is emptied, to free memory. Probabilities and weights are in temporary files
    of `folder`, as in count_ngrams.
    """
    below = np.full(1, 1 / (len(words) - 1))  # every word but <s>
    suffix = longer = np.zeros(len(words), np.int32)
    columns, weights, keep = [], [], []
    for k in range(len(counts)):
        ngrams = counts.pop(0)
        adjusted = ngrams.count
        if counts:
            longer = shorten(ngrams, suffix, counts[0], len(words))
            adjusted = np.zeros_like(ngrams.count)
            for start in range(0, len(longer), MIN_PART):
                np.add.at(adjusted, longer[start : start + MIN_PART], np.int32(1))
            adjusted[ngrams.from_bos] = ngrams.count[ngrams.from_bos]
        if k == 0:
            adjusted[BOS_ID] = 0
        kept = ngrams.count >= min_counts[min(k, len(min_counts) - 1)]
        discounts = find_discounts(np.array([np.count_nonzero(adjusted == count) for count in range(5)]))
        logging.info("%d-grams: %d, discounts %.4f %.4f %.4f", k + 1, kept.sum(), *discounts[1:])
        release(ngrams.word, ngrams.count)
        weight, below = _interpolate(ngrams.parent, suffix, adjusted, kept, discounts, below, folder)
        suffix = longer
        if k == 0:
            below = below.copy()
            below[BOS_ID] = 0  # given, not predicted
            kept[:] = True  # a rare word stays, with the probability of a word never seen
        columns.append((ngrams.parent, ngrams.word, below))
        weights.append(weight)
        keep.append(kept)
    weights.append(np.broadcast_to(1.0, len(below)))
    levels = [Level(*each, weight) for each, weight in zip(columns, weights[1:], strict=True)]
    return select(Trie(words, levels), keep)


def _interpolate(
    parents: Rows,
    suffix: Rows,
    adjusted: Rows,
    kept: np.ndarray,
    discounts: Discounts,
    below: Floats,
    folder: Path | None,
) -> tuple[Floats, Floats]:
    """Return gamma of each history (1 without n-grams) and all probabilities.

    Both are in temporary files of `folder`.
    """
    gamma, end = np.ones(len(below)), 0
    with TemporaryFile(dir=folder) as gammas, TemporaryFile(dir=folder) as probs:
        while end < len(adjusted):  # by some histories at a time
            first, last = parents[[end, min(end + MIN_PART, len(parents)) - 1]]
            rows = slice(end, end := int(np.searchsorted(parents, last, "right")))
            parent, seen = parents[rows] - first, adjusted[rows]
            taken = np.where(kept[rows], np.asarray(discounts)[np.minimum(seen, 3)], seen)
            total = np.bincount(parent, seen)
            some = np.where(total > 0, total, 1)
            weight = np.where(total > 0, np.bincount(parent, taken) / some, 1)
            gamma[first : last + 1] = weight
            probs.write(((seen - taken) / some[parent] + weight[parent] * below[suffix[rows]]).data)
            release(parents, adjusted)
        gammas.write(gamma.data)
        release(below)
        return map_file(gammas, np.float64), map_file(probs, np.float64)


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
