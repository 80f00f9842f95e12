"""Mix n-gram models over the same words linearly (Jelinek and Mercer 1980).

The mixture has the n-grams of all models, each with sum_i weight_i p_i(word | history); a model without the n-gram
backs off. Back-off weights are recomputed, so probabilities sum to one after every history. A word that no model has
after a history gets its probability after the shorter history.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asrtool.lang.ngram.model import Floats
from asrtool.lang.ngram.trie import BOS_ID, UNK_ID, Grams, Level, Rows, Trie, find, keys_of, shorten, with_weights

MIN_GAIN = 1e-9  # nats a word; a round of EM with less gain is the last
MAX_ROUNDS = 10_000
NONE = Level(*np.zeros((2, 0), np.int32), *np.zeros((2, 0)))


def word_probs(model: Trie, text: Rows) -> Floats:
    """Return p(word | words before it) for each predicted word of `text`.

    `text` is as `read_text` returns it. ``<s>`` is given and ``<unk>`` stands for any word, so both are skipped.
    """
    probs, rows, num_words = model.levels[0].prob[text], text, len(model.words)
    for lower, level in zip(model.levels, model.levels[1:], strict=False):
        history = np.append(-1, rows[:-1])
        weights = np.where(history >= 0, lower.backoff[history], 1)
        wanted = np.where(history >= 0, keys_of(history, text, num_words), -1)
        rows = find(keys_of(level.parent, level.word, num_words), wanted)
        probs = np.where(rows >= 0, level.prob[rows], weights * probs)
    predicted: Floats = probs[(text != BOS_ID) & (text != UNK_ID)]
    return predicted


def perplexity(probs: Floats) -> float:
    """Return exp of the mean negative logarithm."""
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
        if log_likelihood - before < MIN_GAIN:
            break
        weights = (weighted / mixed).mean(axis=1)
    return weights.tolist()


def mix(models: Sequence[Trie], weights: Sequence[float]) -> Trie:
    """Return the mixture of `models`, which have the same words; `weights` sum to one."""
    words, levels = models[0].words, list[Level]()
    suffix = np.zeros(len(words), np.int32)
    # By model, of the order mixed last: the row in the mixture of each n-gram that the model has, and for each row its
    # probability, with back-off if the model lacks the n-gram, and its back-off weight, 1 if it lacks it.
    rows, probs, backoffs = [[np.zeros(1, np.int32)] * len(models), *([[np.ones(1)] * len(models)] * 2)]
    for order in range(max(len(model.levels) for model in models)):
        own = [model.levels[order] if order < len(model.levels) else NONE for model in models]
        keys = [keys_of(at[level.parent], level.word, len(words)) for at, level in zip(rows, own, strict=True)]
        merged = np.sort(np.concatenate(keys))
        merged = merged[np.diff(merged, prepend=-1) > 0]
        parent, word = (part.astype(np.int32) for part in np.divmod(merged, len(words)))
        found = [np.searchsorted(merged, each).astype(np.int32) for each in keys]
        if levels:
            suffix = shorten(levels[-1], suffix, Grams(parent, word), len(words))
        probs = [backoff[parent] * prob[suffix] for backoff, prob in zip(backoffs, probs, strict=True)]
        rows, backoffs, mixed = found, [np.ones(len(merged)) for _ in models], np.zeros(len(merged))
        for weight, at, prob, backoff, level in zip(weights, rows, probs, backoffs, own, strict=True):
            prob[at], backoff[at] = level.prob, level.backoff
            mixed += weight * prob
        levels.append(Level(parent, word, mixed, np.ones(0)))
    return with_weights(Trie(words, levels))
