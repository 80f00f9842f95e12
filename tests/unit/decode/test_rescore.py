"""Rescoring n-best lists, by brute force over the list."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from asrtool.decode.trial import Trial
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.config import Decode
from asrtool.decode.rescore import Candidate, score_list
from asrtool.decode.tune import choose_trials, count_errors, count_rescored, rescore_trials
from asrtool.decode.words import Word
from asrtool.score.result import total

VOCABULARY = ("a", "b", "c", "[noise]")


class HashLm:
    """A language model with a made-up probability for every sentence."""

    def log_prob(self, words: list[str]) -> float:
        seed = sum(ord(word[0]) * 31**i for i, word in enumerate(words))
        return float(-5 * np.random.default_rng(seed).uniform(0.1, 1) * (len(words) + 1))

    def log_probs(self, sentences: list[tuple[str, ...]]) -> list[float]:
        return [self.log_prob([*words, "!"]) for words in sentences]


def make_candidate(sentence: tuple[str, ...], acoustic: float, lm: float) -> Candidate:
    spoken = tuple(Word(word, 0.0, 1.0, 1.0) for word in sentence if word != "[noise]")
    return Candidate(spoken, sentence, acoustic, lm)


sentences = st.lists(st.sampled_from(VOCABULARY), max_size=4).map(tuple)
candidates = st.builds(make_candidate, sentences, st.floats(-50, 0), st.floats(-50, 0))
trials = st.builds(
    Trial, st.just("rescore"), st.floats(0.1, 3), st.floats(-2, 2), st.just(10.0), st.sampled_from([0.0, 0.3, 1.0])
)


@given(st.lists(candidates, min_size=1, max_size=6), trials, st.booleans(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_the_best_of_a_list_has_the_highest_sum_of_weighted_scores(
    candidates: list[Candidate], trial: Trial, with_ngram: bool, with_neural: bool
) -> None:
    lm = HashLm()

    def score(candidate: Candidate) -> float:
        ngram = lm.log_prob(list(candidate.sentence)) if with_ngram else candidate.lm
        neural = lm.log_prob([*candidate.sentence, "!"]) if with_neural else 0.0
        penalty = trial.word_penalty * len(candidate.sentence)
        return candidate.acoustic + trial.lm_weight * (ngram - penalty) + trial.nnlm_weight * neural

    best = score_list(candidates, lm if with_ngram else None, lm if with_neural else None).best(trial)
    assert best is not None
    assert score(best) == pytest.approx(max(map(score, candidates)), abs=1e-9)


def test_an_empty_list_has_no_best() -> None:
    assert score_list([], HashLm(), HashLm()).best(Trial("rescore", 1.0)) is None


@given(st.lists(st.lists(candidates, max_size=4), min_size=1, max_size=4), st.lists(sentences, min_size=4, max_size=4))
@settings(max_examples=30, deadline=None)
def test_tuning_counts_the_errors_that_each_trial_would_make(
    lists: list[list[Candidate]], said: list[tuple[str, ...]]
) -> None:
    settings_ = Decode(lm_weights=(0.5, 2.0), word_penalties=(-1.0, 0.0, 1.0), nnlm_weights=(0.0, 0.7))
    scored = [score_list(entry, None, HashLm()) for entry in lists]
    texts = [" ".join(words) for words in said[: len(lists)]]
    results = count_rescored(texts, iter(scored), rescore_trials(settings_, 14.0, neural=True))
    weights = [(r.trial.lm_weight, r.trial.word_penalty, r.trial.nnlm_weight) for r in results]
    assert weights == list(itertools.product((0.5, 2.0), (-1.0, 0.0, 1.0), (0.0, 0.7)))
    for result in results:
        best = [entry.best(result.trial) for entry in scored]
        found = [[word.text for word in candidate.words] if candidate else [] for candidate in best]
        assert result.counts == total(map(count_errors, texts, found))
    chosen = choose_trials(results)["rescore"]
    errors = {result.trial: result.counts.err for result in results}
    assert errors[chosen] == min(errors.values())


def test_without_a_neural_language_model_its_weight_is_zero() -> None:
    trials = rescore_trials(Decode(nnlm_weights=(0.2, 0.6)), 14.0, neural=False)
    assert {trial.nnlm_weight for trial in trials} == {0.0}
    assert math.prod((4, 3)) == len(trials)
