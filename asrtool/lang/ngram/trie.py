"""N-gram model by orders, as it is estimated, mixed and pruned.

A row of a level is an n-gram; its history is a row of the level below. Rows are sorted by history and last word. Every
history of an n-gram, and every n-gram without its first word, is an n-gram of the model.

`prune` leaves out the n-grams that change a model least (Stolcke 1998). Without the n-gram (h, w) the words after h
are predicted by p' in place of p: w by back-off, and the back-off weight of h changes. The relative entropy between
the two, with h' for h without its first word, is

    D = -p(h) ( p(w|h) (log p(w|h') + log b'(h) - log p(w|h)) + (log b'(h) - log b(h)) (1 - sum of known p(.|h)) )

and exp(D) - 1 is the relative rise of the perplexity of text.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from asrtool.lang.ngram.model import Floats, Ints

Rows = NDArray[np.int32]
Mask = NDArray[np.bool_]

UNK_ID, BOS_ID, EOS_ID = 0, 1, 2  # the first words of every vocabulary
ROUNDING = 1e-9  # a probability below it is taken for what sums in float64 leave of nothing
NEVER = 1e-99  # least back-off weight: it has a logarithm
MAX_INT = 2**63 - 1  # int64
LOOKUP_BATCH = 2**18  # keys


@dataclass(frozen=True)
class Grams:
    """N-grams of one order; unigrams are all words in order.

    `parent` is the row, in the level below, of the history, and `word` the last word.
    """

    parent: Rows
    word: Rows


@dataclass(frozen=True)
class Level(Grams):
    """Probabilities of n-grams of one order.

    `prob` is p(last word | history), and `backoff` the factor of unknown words after this n-gram: 1 if all are unknown.
    """

    prob: Floats
    backoff: Floats


@dataclass(frozen=True)
class Trie:
    """A back-off model over `words`; ``levels[k - 1]`` has the n-grams of order k."""

    words: list[str]
    levels: list[Level]


def map_file(file: IO[bytes], dtype: type[Any]) -> NDArray[Any]:
    """Return the content of `file`, which is not empty, as an array.

    Only parts that are read are in memory, until `release`.
    """
    file.flush()
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)


def release(*columns: NDArray[Any]) -> None:
    """Free the memory of columns of map_file until they are read again."""
    for column in columns:
        mapped = getattr(column.base, "obj", None)
        if isinstance(mapped, mmap.mmap):
            mapped.madvise(mmap.MADV_DONTNEED)


def keys_of(parent: Rows, word: Rows, num_words: int) -> Ints:
    """Return a number for each n-gram, which rises with the rows of a level."""
    return parent.astype(np.int64) * num_words + word


def find(keys: Ints, wanted: Ints) -> Rows:
    """Return the row of each of `wanted` in rising `keys`, -1 if it is missing."""
    rows, by_key = np.empty(len(wanted), np.int32), order_of(wanted)
    wanted = wanted[by_key]  # sorted, so that searches read the cache
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    rows[by_key] = np.where(keys[at] == wanted, at, -1)
    return rows


def shorten(lower: Grams, lower_suffix: Rows, level: Grams, num_words: int) -> Rows:
    """Return the row, in `lower`, of each n-gram of `level` without its first word.

    `lower_suffix` has the same of `lower`.
    """
    keys, suffix = keys_of(lower.parent, lower.word, num_words), np.empty_like(level.word)
    release(lower.parent, lower.word)
    for start in range(0, len(suffix), LOOKUP_BATCH):
        rows = slice(start, start + LOOKUP_BATCH)
        suffix[rows] = find(keys, keys_of(lower_suffix[level.parent[rows]], level.word[rows], num_words))
        release(level.parent, level.word)
    return suffix


def order_of(keys: Ints) -> Ints:
    """Return np.argsort(keys), many times as fast if the keys are not too large.

    Then key and position are one number, and numbers are sorted.
    """
    bits = len(keys).bit_length()
    if (int(keys.max(initial=0)) + 1) << bits > MAX_INT:
        return np.argsort(keys)
    packed = keys << bits
    packed += np.arange(len(keys))
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


def sums(level: Level, values: Floats, num: int) -> Floats:
    """Sum `values`, one an n-gram, over the n-grams of each of `num` histories."""
    return np.bincount(level.parent, values, minlength=num).astype(np.float64, copy=False)


def with_weights(model: Trie) -> Trie:
    """Return `model` with back-off weights for its probabilities."""
    levels, suffix = [], np.zeros(len(model.words), np.int32)
    for lower, level in zip(model.levels, [*model.levels[1:], None], strict=True):
        weights = np.ones(len(lower.word))
        if level is not None:
            suffix = shorten(lower, suffix, level, len(model.words))
            left = 1 - sums(level, level.prob, len(weights))
            left_below = 1 - sums(level, lower.prob[suffix], len(weights))
            # If every word is known, no probability is left for the backoff, and its weight is not used.
            some = (np.bincount(level.parent, minlength=len(weights)) > 0) & (left_below > ROUNDING)
            weights[some] = np.maximum(left[some], NEVER) / left_below[some]
        levels.append(dataclasses.replace(lower, backoff=weights))
    return Trie(model.words, levels)


def select(model: Trie, keep: Sequence[Mask]) -> Trie:
    """Return `model` without the n-grams whose `keep`, a mask an order, is false.

    Weights stay. Every unigram must be kept, and with an n-gram its history and suffix.
    """
    if all(kept.all() for kept in keep):
        return model
    levels = []
    rows = np.zeros(1, np.int32)  # the new row of each row of the level below
    for level, kept in zip(model.levels, keep, strict=True):
        if not kept.any():
            break
        levels.append(Level(rows[level.parent[kept]], level.word[kept], level.prob[kept], level.backoff[kept]))
        rows = np.cumsum(kept, dtype=np.int32) - 1
    return Trie(model.words, levels)


def prune(model: Trie, threshold: float) -> Trie:
    """Remove n-grams that alone raise the perplexity by less than `threshold`.

    `threshold` is a fraction. Unigrams stay, and so do histories and suffixes of n-grams that stay.
    """
    first = model.levels[0].prob.copy()
    first[BOS_ID] = first[EOS_ID]  # which it comes with
    joint, suffixes = [first], [np.zeros(len(first), np.int32)]
    for lower, level in itertools.pairwise(model.levels):
        joint.append(joint[-1][level.parent] * level.prob)  # p(g) of each n-gram
        suffixes.append(shorten(lower, suffixes[-1], level, len(model.words)))
    used = np.zeros(len(joint[-1]), np.bool_)  # histories and suffixes of the n-grams kept of the order above
    keep: list[Mask] = []
    for order in range(len(model.levels), 1, -1):
        (lower, level), suffix = model.levels[order - 2 : order], suffixes.pop()
        kept = used | (perplexity_rise(level, lower.prob[suffix], joint[order - 2]) >= threshold)
        used = np.zeros(len(lower.word), np.bool_)
        used[level.parent[kept]] = True
        used[suffix[kept]] = True
        keep.insert(0, kept)
        logging.info("%d-grams: %d of %d kept", order, kept.sum(), len(kept))
    return with_weights(select(model, [np.ones(len(model.words), np.bool_), *keep]))


def perplexity_rise(level: Level, lower_prob: Floats, history_prob: Floats) -> Floats:
    """Return exp(D) - 1 of each n-gram of `level`.

    `lower_prob` is p(w|h') of each n-gram, `history_prob` p(h) of each history. If all words are known after h,
    nothing is left to back off to: the n-gram alone then gets its former probability.
    """
    prob, num = level.prob, len(history_prob)
    left, left_below = (np.maximum(1 - sums(level, known, num), 0)[level.parent] for known in (prob, lower_prob))
    some_left = (left > ROUNDING) & (left_below > ROUNDING)
    log_weight = np.log(np.where(some_left, left, 1) / np.where(some_left, left_below, 1))
    log_new_weight = np.log((left + prob) / (left_below + lower_prob))
    change = prob * (np.log(lower_prob) + log_new_weight - np.log(prob))
    change += np.where(some_left, left * (log_new_weight - log_weight), 0)
    return np.expm1(-history_prob[level.parent] * change)
