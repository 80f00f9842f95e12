"""Pruning against the relative entropy summed over all words."""

from __future__ import annotations

import math
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
    make_sentences,
    ngrams,
    prob,
    same_bits,
    write_text,
)

from asrtool.lang.ngram.arpa import write_arpa
from asrtool.lang.ngram.disk_arrays import Column, Scratch
from asrtool.lang.ngram.mixture import mix
from asrtool.lang.ngram.model import NgramLm
from asrtool.lang.ngram.trie import Trie, prune

SMALL = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
THRESHOLD = st.sampled_from([1e-6, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2])


def estimate_small(folder: Path, sentences: list[list[str]], order: int, scratch: Scratch | None = None) -> Trie:
    return estimate(write_text(folder / "text", sentences), VOCABULARY, order, (1,), scratch)


class WrittenOut:
    """By how much the perplexity rises without one n-gram, from the sums over all words."""

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
    oracle = WrittenOut(model)
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


@SMALL
@given(TEXT, THRESHOLD, st.integers(1, 20))
def test_pruning_in_blocks_of_any_size_gives_the_same_bits(
    tmp_path: Path, sentences: list[list[str]], threshold: float, block: int
) -> None:
    whole = prune(estimate_small(tmp_path, sentences, 4), threshold)
    in_blocks = prune(estimate_small(tmp_path, sentences, 4, Scratch(tmp_path, block)), threshold)
    assert same_bits(whole, in_blocks)


def test_no_step_holds_more_rows_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    read, put = Column.__getitem__, Column.put

    def noted_read(column: Column, rows: slice) -> np.ndarray:
        values = read(column, rows)
        lengths.append(len(values))
        return values

    def noted_put(column: Column, start: int, values: np.ndarray) -> None:
        lengths.append(len(values))
        put(column, start, values)

    monkeypatch.setattr(Column, "__getitem__", noted_read)
    monkeypatch.setattr(Column, "put", noted_put)
    monkeypatch.setattr("asrtool.lang.ngram.arpa.CHUNK", 500)
    scratch = Scratch(tmp_path, 500)
    vocabulary = [f"w{i}" for i in range(300)]
    texts = [write_text(tmp_path / str(seed), make_sentences(1000, 300, seed)) for seed in (1, 2)]
    mixed = mix([estimate(text, vocabulary, 4, (1,), scratch) for text in texts], [0.5, 0.5])
    assert len(mixed.levels[3].key) > 8 * 500
    write_arpa(tmp_path / "G.arpa", prune(mixed, 1e-6))
    assert max(lengths) <= 500 + 14  # whole sentences are written, which have up to 14 words with their marks
