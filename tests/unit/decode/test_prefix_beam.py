"""Prefix beam search against the sum over all CTC paths."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import draw_bigrams
from numba.core.event import install_recorder

from asrtool.decode.parameters import Weights
from asrtool.decode.search.beam import PrefixBeam
from asrtool.lang.ngram.model import NgramLm

PIECES = ("<blk>", "\u2581a", "b", "\u2581c")  # each piece is a letter
WORDS = ("a", "abb", "c", "cb", "b")


# Pieces, the letter or byte of each, and words
IN_LETTERS = (PIECES, (b"", b" a", b"b", b" c"), WORDS)
IN_BYTES = (("<blk>", "\u2581a", "<0xC3>", "<0xA9>"), (b"", b" a", b"\xc3", b"\xa9"), ("a", "a\u00e9", "a\u00e9\u00e9"))
Language = tuple[tuple[str, ...], tuple[bytes, ...], tuple[str, ...]]


def words_of(tokens: tuple[int, ...], language: Language = IN_LETTERS) -> list[bytes]:
    return b"".join(language[1][token] for token in tokens).split()


def weigh(lm_weight: float, word_penalty: float = 0.0, beam_size: int = 10_000) -> Weights:
    return Weights(lm_weight, word_penalty, beam_size)


def lm_score(
    lm: NgramLm,
    tokens: tuple[int, ...],
    word_penalty: float = 0.0,
    language: Language = IN_LETTERS,
    end: tuple[bytes, ...] = (b"</s>",),
) -> float:
    """ln p of the words, each with its penalty, and of the end; an unknown word costs ln V for each piece besides."""
    words = words_of(tokens, language)
    score, state = -word_penalty * len(words), lm.start()
    for word in (*words, *end):
        log_prob, state = lm.step(state, word.decode(errors="replace"))
        score += log_prob
    unknown = (word for word in words if word not in [known.encode() for known in language[2]])
    return score - math.log(len(language[0])) * sum(map(len, unknown))


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


@given(
    posteriors(), st.integers(0, 1000), st.sampled_from([0.0, 0.4, 1.0, 2.5]), st.sampled_from([-2.0, 0.0, 1.0]),
    st.sampled_from([IN_LETTERS, IN_BYTES]),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_a_wide_beam_finds_the_best_sum_over_all_paths_and_its_score(
    log_probs_TV: np.ndarray, seed: int, lm_weight: float, word_penalty: float, language: Language
) -> None:
    lm = draw_bigrams(language[2], seed)
    exact = {
        tokens: score + lm_weight * lm_score(lm, tokens, word_penalty, language)
        for tokens, score in sum_over_paths(log_probs_TV).items()
    }
    beam = PrefixBeam(language[0], lm, language[2], min_prob=0.0)
    tokens, score = beam.search(log_probs_TV, weigh(lm_weight, word_penalty))
    assert score == pytest.approx(max(exact.values()), abs=1e-4)
    assert exact[tokens] == pytest.approx(max(exact.values()), abs=1e-4)


def plain_prefix_beam(log_probs_TV: np.ndarray, lm: NgramLm, weights: Weights) -> tuple[int, ...]:
    """Search plainly: score every extension, then drop all but `beam_size`."""

    def rank(prefix: tuple[int, ...], parts: list[float]) -> float:
        opened = max((i for i, token in enumerate(prefix) if PIECES[token].startswith("\u2581")), default=0)
        closed, (open_word, *_) = prefix[:opened], words_of(prefix[opened:]) or [b""]
        lm_log_prob = lm_score(lm, closed, weights.word_penalty, end=())
        if not any(word.startswith(open_word.decode()) for word in WORDS):
            lm_log_prob -= len(open_word) * math.log(len(PIECES))
        return math.log(sum(parts)) + weights.lm_weight * lm_log_prob

    beam = {(): [1.0, 0.0]}
    for row in np.exp(log_probs_TV.astype(np.float64)):
        after: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for prefix, (blank, spoken) in beam.items():
            after[prefix][0] += (blank + spoken) * row[0]
            for token in range(1, len(row)):
                if prefix and prefix[-1] == token:
                    after[prefix][1] += spoken * row[token]
                    after[(*prefix, token)][1] += blank * row[token]
                else:
                    after[(*prefix, token)][1] += (blank + spoken) * row[token]
        kept = sorted((p for p in after if sum(after[p]) > 0), key=lambda p: rank(p, after[p]), reverse=True)
        beam = {prefix: after[prefix] for prefix in kept[: int(weights.beam)]}
    return max(beam, key=lambda p: math.log(sum(beam[p])) + weights.lm_weight * lm_score(lm, p, weights.word_penalty))


@given(
    posteriors(max_frames=12),
    st.integers(0, 1000),
    st.builds(weigh, st.sampled_from([0.3, 1.0]), st.sampled_from([-3.0, 0.0, 0.7]), st.integers(1, 6)),
)
@settings(max_examples=80, deadline=None)
def test_a_narrow_beam_keeps_what_scoring_every_extension_keeps(
    log_probs_TV: np.ndarray, seed: int, weights: Weights
) -> None:
    lm = draw_bigrams(WORDS, seed)
    tokens, _ = PrefixBeam(PIECES, lm, WORDS, min_prob=0.0).search(log_probs_TV, weights)
    assert tokens == plain_prefix_beam(log_probs_TV, lm, weights)


def test_long_and_certain_utterances_neither_vanish_nor_overflow() -> None:
    num_frames = 6000
    log_probs_TV = np.full((num_frames, len(PIECES)), -200.0, dtype=np.float32)
    log_probs_TV[::2, 0] = 0.0
    log_probs_TV[1::2, 1] = 0.0
    beam = PrefixBeam(PIECES, draw_bigrams(WORDS, 3), WORDS, min_prob=0.0)
    tokens, score = beam.search(log_probs_TV, weigh(0.5, beam_size=8))
    assert tokens == (1,) * (num_frames // 2)
    assert score == pytest.approx(0.5 * lm_score(draw_bigrams(WORDS, 3), tokens), rel=1e-6)


def test_frames_of_near_certain_blank_change_nothing_but_the_score() -> None:
    rows = np.array([[0.1, 0.8, 0.06, 0.04], [0.3, 0.1, 0.5, 0.1]])
    silence = np.array([[1 - 3e-6, 1e-6, 1e-6, 1e-6]] * 5)
    beam, weights = PrefixBeam(PIECES, draw_bigrams(WORDS, 1), WORDS), weigh(0.5, beam_size=8)
    with_silence = beam.search(np.log(np.vstack([silence, rows[:1], silence, rows[1:], silence])), weights)
    one_blank = np.array([[1.0, 0.0, 0.0, 0.0]])
    with np.errstate(divide="ignore"):
        without = beam.search(np.log(np.vstack([rows[:1], one_blank, rows[1:]])), weights)
    assert with_silence[0] == without[0]
    assert with_silence[1] == pytest.approx(without[1] + 15 * math.log(1 - 3e-6), abs=1e-6)


def test_processes_compile_nothing() -> None:
    beam = PrefixBeam(PIECES, draw_bigrams(WORDS, 1), WORDS)
    rows_TV = np.log(np.full((4, len(PIECES)), 0.25, np.float32))
    rows_TV.flags.writeable = False
    with install_recorder("numba:compile") as compiled:
        for rows in (rows_TV, np.asfortranarray(rows_TV), rows_TV[::2], rows_TV.astype(np.float64)):
            beam.search(rows, Weights(1, 0, 2))
    assert not compiled.buffer


def test_of_equals_at_the_end_of_the_beam_the_first_stays() -> None:
    rows_TV = np.log(np.array([[0.15, 0.4, 0.05, 0.4], [0.05, 0.05, 0.05, 0.85]]))
    beam = PrefixBeam(PIECES, draw_bigrams(WORDS, 1), WORDS)
    found = [beam.search(rows_TV, weigh(0.0, beam_size=size))[0] for size in (1, 2)]
    assert found == [(1, 3), (3,)]


def test_the_blank_may_be_any_column() -> None:
    rows_TV = np.log(np.array([[0.1, 0.8, 0.06, 0.04], [0.5, 0.1, 0.3, 0.1], [0.1, 0.7, 0.1, 0.1]], dtype=np.float32))
    found = PrefixBeam(PIECES, draw_bigrams(WORDS, 1), WORDS, min_prob=0.0).search(rows_TV, weigh(0.0))
    last = PrefixBeam((*PIECES[1:], PIECES[0]), draw_bigrams(WORDS, 1), WORDS, blank=3, min_prob=0.0)
    moved = last.search(np.roll(rows_TV, -1, axis=1), weigh(0.0))
    assert (found[0], moved[0]) == ((1, 1), (0, 0))
    assert moved[1] == pytest.approx(found[1])
    assert found[1] == pytest.approx(sum_over_paths(rows_TV)[1, 1], abs=1e-4)  # without a language model no more
