"""Mix n-gram models over the same words linearly (Jelinek and Mercer 1980).

The mixture has the n-grams of all models, each with sum_i weight_i p_i(word | history); a model without the n-gram
backs off. Back-off weights are recomputed, so probabilities sum to one after every history. A word that no model has
after a history gets its probability after the shorter history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asrtool.lang.ngram.disk_arrays import Column, Scratch, find, gather, merge
from asrtool.lang.ngram.model import Floats, Ints
from asrtool.lang.ngram.trie import BOS_ID, UNK_ID, Level, Trie, block_rows, families, with_weights

GAIN = 1e-9  # of a round of EM in nats a word, below which the weights stand
MAX_ROUNDS = 10_000


def word_probs(model: Trie, text: Ints) -> Floats:
    """Return p(word | words before it) for each predicted word of `text`.

    `text` is as `read_text` returns it. ``<s>`` is given and ``<unk>`` stands for any word, so both are skipped.
    """
    probs = gather(model.levels[0].prob, text, model.block)
    rows = text
    for lower, level in zip(model.levels, model.levels[1:], strict=False):
        history = np.append(-1, rows[:-1])
        known = history >= 0
        weights = np.where(known, gather(lower.backoff, np.maximum(history, 0), model.block), 1)
        rows = find(level.key, np.where(known, history * len(model.words) + text, -1), model.block)
        own = gather(level.prob, np.maximum(rows, 0), model.block)
        probs = np.where(rows >= 0, own, weights * probs)
    predicted: Floats = probs[(text != BOS_ID) & (text != UNK_ID)]
    return predicted


def perplexity(probs: Floats) -> float:
    """exp of the mean negative logarithm."""
    return float(np.exp(-np.log(probs).mean()))


def find_weights(probs: Sequence[Floats]) -> list[float]:
    """Return mixture weights of highest likelihood, by EM (Dempster et al. 1977).

    ``probs[i]`` are the probabilities of each word of a text by model i.
    """
    stacked = np.stack(probs)
    weights = np.full(len(stacked), 1 / len(stacked))
    log_likelihood = -np.inf
    for _ in range(MAX_ROUNDS):
        weighted = weights[:, None] * stacked
        mixed = weighted.sum(axis=0)
        before, log_likelihood = log_likelihood, float(np.log(mixed).mean())
        if log_likelihood - before < GAIN:
            break
        weights = (weighted / mixed).mean(axis=1)
    return weights.tolist()


def mix(models: Sequence[Trie], weights: Sequence[float]) -> Trie:
    """The mixture of `models`, which have the same words; `weights` sum to one."""
    first = models[0]
    mixer = _Mixer(weights, len(first.words), first.scratch)
    levels = []
    for order in range(1, max(len(model.levels) for model in models) + 1):
        levels.append(mixer.mix([model.levels[order - 1] if order <= len(model.levels) else None for model in models]))
    return with_weights(Trie(first.words, levels, first.scratch))


@dataclass
class _Part:
    """N-grams of one model in the mixture, of the order mixed last."""

    rows: Column  # of the mixture, for each row of the model
    prob: Column  # with back-off where the model does not know the n-gram
    backoff: Column  # 1 where it does not


class _Mixer:
    """Mixes order by order."""

    def __init__(self, weights: Sequence[float], num_words: int, scratch: Scratch) -> None:
        self._weights = weights
        self._num_words = num_words
        self._scratch = scratch
        self._block = block_rows(scratch, num_words)
        self._num_histories = 1
        zero, one = np.zeros(1, np.int64), np.ones(1)
        self._parts = [
            _Part(scratch.column(values=zero), scratch.column(float, one), scratch.column(float, one)) for _ in weights
        ]

    def mix(self, levels: Sequence[Level | None]) -> Level:
        """Return the n-grams of the next order without back-off weights.

        A model without that order is None.
        """
        scratch = self._scratch
        keys, suffixes, bounds = self._renumber(levels)
        level = Level(scratch.column(), scratch.column(), scratch.column(np.float64), scratch.column(np.float64))
        parts = [_Part(scratch.column(), scratch.column(np.float64), scratch.column(np.float64)) for _ in levels]
        for merged, sources in merge(keys, bounds, self._block):
            suffix = np.zeros_like(merged)
            for i, (source, at) in enumerate(sources):
                suffix[at] = suffixes[source]
                prob, backoff = np.full(len(merged), np.nan), np.ones(len(merged))
                known = levels[i]
                if known is not None:
                    rows = slice(source.start - bounds[i], source.stop - bounds[i])
                    prob[at], backoff[at] = known.prob[rows], known.backoff[rows]
                parts[i].rows.append(len(level.key) + at)
                parts[i].prob.append(prob)
                parts[i].backoff.append(backoff)
            level.key.append(merged)
            level.suffix.append(suffix)
        self._back_off(level, parts)
        self._num_histories = len(level.key)
        self._parts = parts
        return level

    def _renumber(self, levels: Sequence[Level | None]) -> tuple[Column, Column, list[int]]:
        """Return keys and suffixes of all models in rows of the mixture, and their starts."""
        keys, suffixes, bounds = self._scratch.column(), self._scratch.column(), [0]
        for level, part in zip(levels, self._parts, strict=True):
            if level is not None:
                for start, key in level.key.blocks(self._block):
                    history, word = np.divmod(key, self._num_words)
                    suffix = level.suffix[start : start + len(key)]
                    keys.append(gather(part.rows, history, self._block) * self._num_words + word)
                    suffixes.append(gather(part.rows, suffix, self._block))
            bounds.append(len(keys))
        return keys, suffixes, bounds

    def _back_off(self, level: Level, parts: Sequence[_Part]) -> None:
        """Fill in what models do not know, and mix."""
        for family in families(level.key, self._num_histories, self._num_words, self._block):
            suffix = level.suffix[family.rows]
            mixed = np.zeros(len(suffix))
            for weight, part, lower in zip(self._weights, parts, self._parts, strict=True):
                prob = part.prob[family.rows]
                backed_off = lower.backoff[family.histories][family.parent] * gather(lower.prob, suffix, self._block)
                prob = np.where(np.isnan(prob), backed_off, prob)
                part.prob.put(family.rows.start, prob)
                mixed += weight * prob
            level.prob.append(mixed)
