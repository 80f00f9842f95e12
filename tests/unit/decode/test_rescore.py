"""Rescoring n-best lists, by brute force over the list."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.decode.parameters import DecodingParameters
from asrtool.decode.resources import Resources
from asrtool.decode.search.method import SearchResult
from asrtool.decode.search.rescore import Candidate, Rescore
from asrtool.decode.tune import tried
from asrtool.decode.words import Word
from asrtool.settings.config import Config
from asrtool.settings.decode import Rescore as RescoreSettings
from asrtool.settings.train import Nnlm

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
GRAPH = DecodingParameters.of("graph", lm_weight=0.5, word_penalty=0.0, beam=14.0)


def open_rescore(neural: bool, **settings: tuple[float, ...]) -> Rescore:
    """The method with made-up language models."""
    config = Config(nnlm=Nnlm(enabled=neural))
    method = Rescore("rescore", RescoreSettings(**settings), Resources(None, {}, config))  # type: ignore[arg-type]
    method.ngram, method.neural = None, HashLm() if neural else None  # type: ignore[assignment]
    return method


@given(
    st.lists(candidates, max_size=6),
    st.tuples(st.floats(0.1, 3), st.floats(0.1, 3)),
    st.floats(-2, 2),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_the_best_of_a_list_has_the_highest_sum_of_weighted_scores(
    entry: list[Candidate], lm_weights: tuple[float, float], penalty: float, with_ngram: bool, with_neural: bool
) -> None:
    """All weights are tried together on one list."""
    lm = HashLm()
    settings = {"lm_weights": lm_weights, "word_penalties": (penalty, 0.0), "nnlm_weights": (0.0, 0.7)}
    method = open_rescore(with_neural, **settings)
    method.ngram = lm if with_ngram else None  # type: ignore[assignment]
    parameters = tried(method, 0, {"graph": GRAPH})
    combined = [(each["lm_weight"], each["word_penalty"], each["nnlm_weight"]) for each in parameters]
    of_neural = (0.0, 0.7) if with_neural else (0.0,)
    assert combined == list(itertools.product(dict.fromkeys(lm_weights), dict.fromkeys((penalty, 0.0)), of_neural))
    assert {each["beam"] for each in parameters} == {14.0}
    assert {method.first_pass(each) for each in parameters} == {DecodingParameters("rescore", GRAPH.items)}

    def score(candidate: Candidate, each: DecodingParameters) -> float:
        ngram = lm.log_prob(list(candidate.sentence)) if with_ngram else candidate.lm
        neural = lm.log_prob([*candidate.sentence, "!"]) if with_neural else 0.0
        of_ngram = ngram - each["word_penalty"] * len(candidate.sentence)
        return candidate.acoustic + each["lm_weight"] * of_ngram + each["nnlm_weight"] * neural

    [result] = method.complete([SearchResult((), tuple(entry))])
    for each, words in zip(parameters, method.choose(result, parameters), strict=True):
        scores = [(score(candidate, each), candidate.words) for candidate in entry]
        best = max((total for total, _ in scores), default=0.0)
        assert any(words == others and total > best - 1e-9 for total, others in scores) or (not entry and not words)


@given(st.lists(st.lists(candidates, max_size=3), max_size=4))
@settings(max_examples=30, deadline=None)
def test_lists_are_scored_side_by_side_as_one_by_one(lists: list[list[Candidate]]) -> None:
    method = open_rescore(True)
    method.ngram = HashLm()  # type: ignore[assignment]
    results = [SearchResult((), tuple(some)) for some in lists]
    assert method.complete(results) == [method.complete([result])[0] for result in results]


@pytest.mark.parametrize(
    ("trained", "applied"), [("auto", torch.bfloat16), ("fp16", torch.bfloat16), ("fp32", torch.float32)]
)
def test_the_neural_language_model_is_applied_in_the_fastest_format_that_was_not_refused_in_training(
    trained: str, applied: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asrtool.models.precision.has_bf16", lambda device: True)
    seen: list[torch.dtype] = []

    class Watched(HashLm):
        def log_probs(self, sentences: list[tuple[str, ...]]) -> list[float]:
            seen.append((torch.ones(1, 1) @ torch.ones(1, 1)).dtype)
            return super().log_probs(sentences)

    method = open_rescore(True)
    method.resources = Resources(None, {}, Config(nnlm=Nnlm(enabled=True, precision=trained)))  # type: ignore[arg-type]
    method.neural = Watched()  # type: ignore[assignment]
    method.complete([SearchResult((), (make_candidate(("a",), -1.0, -1.0),))])
    assert seen == [applied]


def test_without_a_neural_language_model_no_gpu_is_asked_which_a_forked_process_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> bool:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    monkeypatch.setattr(torch.cuda, "is_available", refuse)
    method = open_rescore(False)
    result = SearchResult((), (make_candidate(("a",), -1.0, -1.0),))
    assert method.complete([result]) == [result]
