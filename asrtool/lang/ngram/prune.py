"""Leaving out the n-grams that change a model least (Stolcke 1998).

Without the n-gram (h, w) the words after h are predicted by p' in place of p: w by back-off, and what the back-off
weight of h becomes. The relative entropy between the two, with h' for h without its first word, is

    D = -p(h) ( p(w|h) (log p(w|h') + log b'(h) - log p(w|h)) + (log b'(h) - log b(h)) (1 - sum of known p(.|h)) )

and exp(D) - 1 is by how much the perplexity of text rises, relative to what it was.
"""

from __future__ import annotations

import logging

import numpy as np

from asrtool.lang.ngram.disk_arrays import Column, gather, tally
from asrtool.lang.ngram.model import Floats
from asrtool.lang.ngram.trie import BOS_ID, EOS_ID, ROUNDING, Family, Trie, families, select, with_weights


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
