"""Mixtures and pruning of models against sums over all words, and tuned weights against all others."""

from __future__ import annotations

import itertools
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ngram_oracle import (
    PREDICTED,
    TEXT,
    VOCABULARY,
    Ngram,
    estimate,
    histories,
    in_memory,
    ngrams,
    prob,
    write_text,
)

from asrtool.lang.ngram.kneser_ney import number_words, read_text
from asrtool.lang.ngram.mixture import find_weights, mix, perplexity, word_probs
from asrtool.lang.ngram.model import NgramLm
from asrtool.lang.ngram.trie import Trie, prune

SMALL = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
WEIGHTS = st.floats(0.05, 0.95)


def estimate_each(folder: Path, texts: list[list[list[str]]], orders: list[int]) -> list[Trie]:
    paths = [write_text(folder / f"text{i}", text) for i, text in enumerate(texts)]
    return [estimate(path, VOCABULARY, order, (1, 2)) for path, order in zip(paths, orders, strict=True)]


class WrittenOut:
    """The mixture, one word at a time."""

    def __init__(self, models: list[Trie], weights: list[float]) -> None:
        self.lms = [NgramLm(in_memory(model)) for model in models]
        self.weights = weights
        self.known = set().union(*(ngrams(in_memory(model)) for model in models))

    @cache  # noqa: B019
    def prob(self, word: str, history: Ngram) -> float:
        if (*history, word) in self.known:
            parts = [prob(lm, word, history) for lm in self.lms]
            return sum(weight * part for weight, part in zip(self.weights, parts, strict=True))
        shorter = self.prob(word, history[1:])
        known = [other for other in PREDICTED if (*history, other) in self.known]
        if not known:
            return shorter
        left = 1 - sum(self.prob(other, history) for other in known)
        return left * shorter / (1 - sum(self.prob(other, history[1:]) for other in known))


@SMALL
@given(st.lists(TEXT, min_size=2, max_size=3), st.lists(st.integers(1, 4), min_size=3, max_size=3), WEIGHTS)
def test_every_probability_is_that_of_the_mixture(
    tmp_path: Path, texts: list[list[list[str]]], orders: list[int], weight: float
) -> None:
    models = estimate_each(tmp_path, texts, orders[: len(texts)])
    weights = [weight, 1 - weight] if len(texts) == 2 else [weight / 2, weight / 2, 1 - weight]
    oracle, mixed = WrittenOut(models, weights), in_memory(mix(models, weights))
    assert ngrams(mixed) == oracle.known
    lm = NgramLm(mixed)
    for history in {history for text in texts for history in histories(text, 4)}:
        known = tuple(word if word != "e" else "<unk>" for word in history)
        for word in PREDICTED:
            assert prob(lm, word, history) == pytest.approx(oracle.prob(word, known), rel=1e-7)


@SMALL
@given(TEXT, TEXT, st.integers(1, 4))
def test_word_probabilities_of_a_text_are_those_of_the_scorer(
    tmp_path: Path, sentences: list[list[str]], held_out: list[list[str]], order: int
) -> None:
    (model,) = estimate_each(tmp_path, [sentences], [order])
    text = read_text([write_text(tmp_path / "dev", held_out)], number_words(VOCABULARY))
    lm = NgramLm(in_memory(model))
    expected = []
    for words in held_out:
        state = lm.start()
        for word in (*words, "</s>"):
            log_prob, state = lm.step(state, word)
            expected += [math.exp(log_prob)] if word != "e" else []
    assert word_probs(model, text) == pytest.approx(expected)


def test_tuned_weights_are_better_than_all_of_a_grid() -> None:
    random = np.random.default_rng(4)
    probs = [random.beta(1, 5, 3000), random.beta(1, 4, 3000), random.beta(1, 30, 3000)]
    weights = find_weights(probs)
    assert sum(weights) == pytest.approx(1)
    best = perplexity(np.tensordot(weights, probs, 1))
    grid = [(a / 20, b / 20, 1 - (a + b) / 20) for a, b in itertools.product(range(21), repeat=2) if a + b <= 20]
    nearest = min(grid, key=lambda point: perplexity(np.tensordot(point, probs, 1) + 1e-300))
    assert best <= perplexity(np.tensordot(nearest, probs, 1) + 1e-300)
    assert weights == pytest.approx(nearest, abs=0.05)


THRESHOLD = st.sampled_from([1e-6, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2])


def estimate_small(folder: Path, sentences: list[list[str]], order: int) -> Trie:
    return estimate(write_text(folder / "text", sentences), VOCABULARY, order, (1,))


class Without:
    """Model without one n-gram: the rise of the perplexity, from the sums over all words."""

    def __init__(self, model: Trie) -> None:
        self.known = ngrams(in_memory(model))
        self.lm = NgramLm(in_memory(model))

    def prob(self, word: str, history: Ngram) -> float:
        return prob(self.lm, word, history)

    def joint(self, gram: Ngram) -> float:
        first = "</s>" if gram[0] == "<s>" else gram[0]
        rest = [self.prob(gram[i], gram[:i]) for i in range(1, len(gram))]
        return self.prob(first, ()) * math.prod(rest)

    def rise(self, gram: Ngram) -> float:
        history = gram[:-1]
        known = [word for word in PREDICTED if (*history, word) in self.known and word != gram[-1]]
        left = 1 - sum(self.prob(word, history) for word in known)
        weight = left / (1 - sum(self.prob(word, history[1:]) for word in known))
        entropy = 0.0
        for word in PREDICTED:
            before = self.prob(word, history)
            after = before if word in known else weight * self.prob(word, history[1:])
            entropy += before * math.log(before / after)
        return math.exp(self.joint(history) * entropy) - 1


def used_by(grams: set[Ngram]) -> set[Ngram]:
    return {part for gram in grams for part in (gram[:-1], gram[1:])}


@SMALL
@given(TEXT, st.integers(2, 4), THRESHOLD)
def test_what_changes_the_model_too_little_is_left_out(
    tmp_path: Path, sentences: list[list[str]], order: int, threshold: float
) -> None:
    model = estimate_small(tmp_path, sentences, order)
    oracle = Without(model)
    kept = ngrams(in_memory(prune(model, threshold)))
    assert kept <= oracle.known
    for gram in oracle.known:
        rise = oracle.rise(gram) if len(gram) > 1 else math.inf
        if not math.isclose(rise, threshold, rel_tol=1e-5):
            assert (gram in kept) == (rise > threshold or gram in used_by(kept)), (gram, rise)


@SMALL
@given(TEXT, st.integers(1, 4), THRESHOLD)
def test_a_pruned_model_sums_to_one_and_keeps_the_probabilities_of_its_ngrams(
    tmp_path: Path, sentences: list[list[str]], order: int, threshold: float
) -> None:
    model = estimate_small(tmp_path, sentences, order)
    pruned = in_memory(prune(model, threshold))
    before, after = NgramLm(in_memory(model)), NgramLm(pruned)
    for history in histories(sentences, order):
        assert sum(prob(after, word, history) for word in PREDICTED) == pytest.approx(1, abs=1e-8)
    for gram in ngrams(pruned) - {("<s>",)}:
        assert prob(after, gram[-1], gram[:-1]) == pytest.approx(prob(before, gram[-1], gram[:-1]))
