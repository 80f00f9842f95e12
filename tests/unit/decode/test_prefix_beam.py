"""Prefix beam search against the sum over all CTC paths."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.decode.path import viterbi_path
from asrtool.decode.prefix_beam import PrefixBeam

PIECES = ("<blk>", "\u2581a", "b", "\u2581c")


class BigramLm:
    """A bigram with a probability for every pair of words, drawn from a seed; the state is the word before."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def start(self) -> str:
        return "<s>"

    def step(self, state: str, word: str) -> tuple[float, str]:
        key = sum(map(ord, state)) * 31 + sum(map(ord, word)) * 7 + self.seed
        return float(np.log(np.random.default_rng(key).uniform(0.01, 0.99))), word


def spell(tokens: tuple[int, ...]) -> list[str]:
    return "".join(PIECES[token] for token in tokens).replace("\u2581", " ").split()


def lm_score(lm: BigramLm, tokens: tuple[int, ...]) -> float:
    score, state = 0.0, lm.start()
    for word in [*spell(tokens), "</s>"]:
        log_prob, state = lm.step(state, word)
        score += log_prob
    return score


def collapse(path: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(token for token, _ in itertools.groupby(path) if token != 0)


def sum_over_paths(log_probs_TV: np.ndarray) -> dict[tuple[int, ...], float]:
    """ln p of every token sequence, by enumeration of all V ** T paths."""
    probs: dict[tuple[int, ...], float] = defaultdict(float)
    num_frames, num_tokens = log_probs_TV.shape
    for path in itertools.product(range(num_tokens), repeat=num_frames):
        probs[collapse(path)] += math.exp(sum(float(log_probs_TV[t, v]) for t, v in enumerate(path)))
    return {tokens: math.log(prob) for tokens, prob in probs.items() if prob > 0}


@st.composite
def posteriors(draw: st.DrawFn, max_frames: int = 5) -> np.ndarray:
    """Log posteriors of PIECES, from flat to very peaked."""
    num_frames = draw(st.integers(1, max_frames))
    seed = draw(st.integers(0, 2**31))
    sharpness = draw(st.sampled_from([0.3, 1.0, 3.0, 10.0]))
    logits = np.random.default_rng(seed).normal(scale=sharpness, size=(num_frames, len(PIECES)))
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)


@given(posteriors(), st.integers(0, 1000), st.sampled_from([0.0, 0.4, 1.0, 2.5]))
@settings(max_examples=60, deadline=None)
def test_a_wide_beam_finds_the_best_sum_over_all_paths_and_its_score(
    log_probs_TV: np.ndarray, seed: int, lm_weight: float
) -> None:
    lm = BigramLm(seed)
    exact = {tokens: score + lm_weight * lm_score(lm, tokens) for tokens, score in sum_over_paths(log_probs_TV).items()}
    found = PrefixBeam(PIECES, lm, beam_size=10_000, min_prob=0.0).search(log_probs_TV, lm_weight)
    assert found.score == pytest.approx(max(exact.values()), abs=1e-4)
    assert exact[found.tokens] == pytest.approx(max(exact.values()), abs=1e-4)


@given(posteriors())
@settings(max_examples=40, deadline=None)
def test_without_a_language_model_the_score_is_the_acoustic_one(log_probs_TV: np.ndarray) -> None:
    exact = sum_over_paths(log_probs_TV)
    found = PrefixBeam(PIECES, None, beam_size=10_000, min_prob=0.0).search(log_probs_TV, 1.0)
    assert found.score == pytest.approx(max(exact.values()), abs=1e-4)


@given(posteriors(max_frames=4))
@settings(max_examples=40, deadline=None)
def test_the_viterbi_path_is_the_best_of_all_paths_that_spell_the_tokens(log_probs_TV: np.ndarray) -> None:
    num_frames, num_tokens = log_probs_TV.shape
    best: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(num_tokens), repeat=num_frames):
        score = sum(float(log_probs_TV[t, v]) for t, v in enumerate(path))
        best[collapse(path)] = max(score, best.get(collapse(path), -math.inf))
    for tokens, score in best.items():
        path_T = viterbi_path(log_probs_TV, tokens)
        assert collapse(tuple(path_T.tolist())) == tokens
        assert float(log_probs_TV[np.arange(num_frames), path_T].sum()) == pytest.approx(score, abs=1e-4)
