"""N-gram model larger than memory: sorted keys in columns on disk, and pruning.

A row of a level is an n-gram; its key is the row of its history in the level below times the number of words, plus
its last word. Keys rise, so the n-grams of a history are adjacent, and a level can be read beside the one below.
Every history of an n-gram, and every n-gram without its first word, is an n-gram of the model.

`prune` leaves out the n-grams that change a model least (Stolcke 1998). Without the n-gram (h, w) the words after h
are predicted by p' in place of p: w by back-off, and the back-off weight of h changes. The relative entropy between
the two, with h' for h without its first word, is

    D = -p(h) ( p(w|h) (log p(w|h') + log b'(h) - log p(w|h)) + (log b'(h) - log b(h)) (1 - sum of known p(.|h)) )

and exp(D) - 1 is the relative rise of the perplexity of text.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from asrtool.lang.ngram.disk_arrays import Array, Column, Scratch, gather, tally
from asrtool.lang.ngram.model import Floats, Ints

UNK_ID, BOS_ID, EOS_ID = 0, 1, 2  # the first words of every vocabulary
ROUNDING = 1e-9  # a probability below it is taken for what sums in float64 leave of nothing
NEVER = 1e-99  # least back-off weight: it has a logarithm


@dataclass(frozen=True)
class Level:
    """N-grams of one order; unigrams are all words in order, their key is the word.

    `suffix` is the row, in the level below, of the n-gram without its first word. `prob` is p(last word | history),
    and `backoff` the factor of unknown words after this n-gram: 1 if all are unknown.
    """

    key: Column
    suffix: Column
    prob: Column
    backoff: Column


@dataclass(frozen=True)
class Trie:
    """A back-off model over `words`; ``levels[k - 1]`` has the n-grams of order k."""

    words: list[str]
    levels: list[Level]
    scratch: Scratch

    @property
    def block(self) -> int:
        """Rows read at a time."""
        return block_rows(self.scratch, len(self.words))


def block_rows(scratch: Scratch, num_words: int) -> int:
    """Return the rows of a block, at least the n-grams of one history."""
    return max(scratch.block, num_words + 1)


@dataclass(frozen=True)
class Family:
    """N-grams `rows` of a level with all of the histories `histories`."""

    histories: slice
    rows: slice
    parent: Ints  # the history of each n-gram, counted from the first of `histories`
    word: Ints

    def total(self, values: Array) -> Floats:
        """The sum of `values`, one an n-gram, over the n-grams of each history."""
        sums = np.bincount(self.parent, values, minlength=self.histories.stop - self.histories.start)
        return sums.astype(np.float64, copy=False)


def families(key: Column, num_histories: int, num_words: int, block: int) -> Iterator[Family]:
    """Yield all n-grams of a level in order, up to `block` at a time.

    All histories are in them, with or without n-grams.
    """
    history, row = 0, 0
    while history < num_histories:
        parent, word = np.divmod(key[row : row + block], num_words)
        end = min(history + block, num_histories)
        if row + len(parent) < len(key):
            end = min(end, int(parent[-1]))  # of the last one there may be more
        num = int(np.searchsorted(parent, end))
        yield Family(slice(history, end), slice(row, row + num), parent[:num] - history, word[:num])
        history, row = end, row + num


def with_weights(model: Trie) -> Trie:
    """Return `model` with back-off weights for its probabilities."""
    return dataclasses.replace(
        model,
        levels=[
            dataclasses.replace(level, backoff=_backoff_weights(model, order))
            for order, level in enumerate(model.levels, 1)
        ],
    )


def _backoff_weights(model: Trie, order: int) -> Column:
    """Back-off weights for the n-grams of `order`."""
    lower = model.levels[order - 1]
    weights = model.scratch.column(np.float64)
    if order == len(model.levels):
        append_ones(weights, len(lower.key), model.block)
        return weights
    level = model.levels[order]
    for family in families(level.key, len(lower.key), len(model.words), model.block):
        left = 1 - family.total(level.prob[family.rows])
        left_below = 1 - family.total(gather(lower.prob, level.suffix[family.rows], model.block))
        has_any = family.total(np.ones(len(family.parent))) > 0
        # Where every word is known nothing is left to distribute, and any weight will do.
        has_rest = has_any & (left_below > ROUNDING)
        weights.append(np.where(has_rest, np.maximum(left, NEVER) / np.where(has_rest, left_below, 1), 1))
    return weights


def append_ones(column: Column, num: int, block: int) -> None:
    """Add `num` rows of one."""
    for start in range(0, num, block):
        column.append(np.ones(min(block, num - start)))


def select(model: Trie, keep: Sequence[Column]) -> Trie:
    """Return `model` without the n-grams whose `keep`, a column an order, is false.

    Weights stay. Every unigram must be kept, and with an n-gram its history and suffix.
    """
    scratch, num_words = model.scratch, len(model.words)
    levels = []
    lower_rows = scratch.column(values=np.zeros(1, np.int64))  # the new row of each row of the level below
    for level, kept in zip(model.levels, keep, strict=True):
        new = Level(scratch.column(), scratch.column(), scratch.column(np.float64), scratch.column(np.float64))
        rows = scratch.column()
        for start, mask in kept.blocks(model.block):
            span = slice(start, start + len(mask))
            rows.append(len(new.key) + np.cumsum(mask) - 1)
            parent, word = np.divmod(level.key[span][mask], num_words)
            new.key.append(gather(lower_rows, parent, model.block) * num_words + word)
            new.suffix.append(gather(lower_rows, level.suffix[span][mask], model.block))
            new.prob.append(level.prob[span][mask])
            new.backoff.append(level.backoff[span][mask])
        levels.append(new)
        lower_rows = rows
    while not len(levels[-1].key):
        levels.pop()
    return Trie(model.words, levels, scratch)


def prune(model: Trie, threshold: float) -> Trie:
    """Remove n-grams that alone raise the perplexity by less than `threshold`.

    `threshold` is a fraction. Unigrams stay, and so do histories and suffixes of n-grams that stay.
    """
    keep: list[Column] = []
    used = model.scratch.column()  # histories and suffixes of the n-grams kept of the order above
    for order in range(len(model.levels), 1, -1):
        kept, used = _prune_order(model, order, threshold, used)
        keep.insert(0, kept)
    keep.insert(0, model.scratch.column(np.bool_, np.ones(len(model.words), np.bool_)))
    return with_weights(select(model, keep))


def _prune_order(model: Trie, order: int, threshold: float, used: Column) -> tuple[Column, Column]:
    """Return which n-grams of `order` are kept, given those `used`, and what they use."""
    lower, level = model.levels[order - 2], model.levels[order - 1]
    history_probs = joint_probs(model, order - 1)
    keep, uses = model.scratch.column(np.bool_), model.scratch.column()
    num_kept = 0
    for family in families(level.key, len(lower.key), len(model.words), model.block):
        suffix = level.suffix[family.rows]
        rise = perplexity_rise(
            family, level.prob[family.rows], gather(lower.prob, suffix, model.block), history_probs[family.histories]
        )
        kept = (rise >= threshold) | (tally(used, family.rows.start, family.rows.stop, model.block) > 0)
        keep.append(kept)
        uses.append(family.histories.start + family.parent[kept])
        uses.append(suffix[kept])
        num_kept += int(kept.sum())
    logging.info("%d-grams: %d of %d kept", order, num_kept, len(level.key))
    return keep, uses


def joint_probs(model: Trie, order: int) -> Column:
    """Return p(g) of each n-gram of `order`, by the chain rule.

    ``<s>`` is as likely as ``</s>``, with which it comes.
    """
    first = model.levels[0].prob[:]
    first[BOS_ID] = first[EOS_ID]
    joint = model.scratch.column(np.float64, first)
    for level in model.levels[1:order]:
        histories, joint = joint, model.scratch.column(np.float64)
        for family in families(level.key, len(histories), len(model.words), model.block):
            joint.append(histories[family.histories][family.parent] * level.prob[family.rows])
    return joint


def perplexity_rise(family: Family, prob: Floats, lower_prob: Floats, history_prob: Floats) -> Floats:
    """Return exp(D) - 1 of each n-gram of `family`.

    `lower_prob` is p(w|h') of each n-gram, `history_prob` p(h) of each history. If all words are known after h,
    nothing is left to back off to: the n-gram alone then gets its former probability.
    """
    left, left_below = (np.maximum(1 - family.total(known), 0)[family.parent] for known in (prob, lower_prob))
    some_left = (left > ROUNDING) & (left_below > ROUNDING)
    log_weight = np.log(np.where(some_left, left, 1) / np.where(some_left, left_below, 1))
    log_new_weight = np.log((left + prob) / (left_below + lower_prob))
    change = prob * (np.log(lower_prob) + log_new_weight - np.log(prob))
    change += np.where(some_left, left * (log_new_weight - log_weight), 0)
    return np.expm1(-history_prob[family.parent] * change)
