"""Searches of an encoder-decoder against all sequences of a small one, and CTC beside them."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from made_up import draw_bigrams

from asrtool.decode.parameters import DecodingParameters, TuningFile, Weights, format_parameters
from asrtool.decode.search.attention import BLANK, END, Attended, Beam, Decoder, Greedy, PrefixScorer
from asrtool.decode.search.prefix_tree import PrefixTree
from asrtool.decode.words import WordPieces
from asrtool.errors import AsrtoolError
from asrtool.models.objectives.attention import Attention
from asrtool.settings.decode import AttentionBeam
from asrtool.settings.models import Attention as AttentionSettings

PIECES = ["<blank>", "▁a", "b", "▁c"]
FRAME_S = 0.03
WORDS = ("a", "ab", "c")
BIGRAMS = draw_bigrams(WORDS, seed=1)
NUM_ROWS = 4


def objective_of(seed: int) -> Attention:
    torch.manual_seed(seed)
    objective = Attention(AttentionSettings(hidden_size=5, attention_size=4, kernel_size=3), 5, len(PIECES))
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.8)
    return objective


def search_of(kind: type, seed: int) -> Any:
    search = object.__new__(kind)
    objective = objective_of(seed)
    search.weights = {name: value.detach().numpy() for name, value in objective.state_dict().items()}
    search.settings, search.grouping = AttentionBeam(), WordPieces(PIECES)
    search.resources = SimpleNamespace(acoustic=SimpleNamespace(frame_s=FRAME_S, model=SimpleNamespace()))
    search.resources.acoustic.model.objective = objective
    search.tree = PrefixTree(PIECES, BIGRAMS, WORDS)
    return search


def rows_of(seed: int) -> np.ndarray:
    return (2 * np.random.default_rng(100 + seed).standard_normal((NUM_ROWS, 5))).astype(np.float32)


def spoken(search: Any, rows_TC: np.ndarray, tokens: tuple[int, ...]) -> float:
    """ln P of the tokens and the end, by the decoder."""
    decoder = Decoder(search.weights, rows_TC)
    state, total = decoder.start(), 0.0
    for before, token in itertools.pairwise((END, *tokens, END)):
        log_probs_1V, _, state = decoder.step(np.array([before]), state)
        total += float(log_probs_1V[0, token])
    return total


def by_ctc(scorer: PrefixScorer, tokens: tuple[int, ...]) -> float:
    state, last = scorer.start(), BLANK
    for token in tokens:
        _, state = scorer.extend(state, np.array([last]), np.array([[token]]))
        last = token
    return float(scorer.end(state)[0])


def best_of_all(search: Any, rows_TC: np.ndarray, weights: Weights, ctc_weight: float) -> tuple[int, ...]:
    def total(tokens: tuple[int, ...]) -> float:
        node = Attended(None, END, search.tree.start)
        for token in tokens:
            node = search.tree.add(node, token, weights)
        score = (1 - ctc_weight) * spoken(search, rows_TC, tokens)
        if ctc_weight:
            score += ctc_weight * by_ctc(search.ctc_scorer(rows_TC), tokens)
        return score + float(node.lm) + float(search.tree.end(node.known, weights))

    lengths = range(len(rows_TC) + 1)
    return max(itertools.chain(*(itertools.product((1, 2, 3), repeat=length) for length in lengths)), key=total)


@pytest.mark.parametrize(  # each pair of values once
    ("lm_weight", "ctc_weight", "word_penalty"),
    [(0.0, 0.0, 0.5), (0.0, 0.4, -3.0), (0.7, 0.0, -3.0), (0.7, 0.4, 0.5)],
)
def test_a_beam_that_holds_all_finds_the_best_sequence(
    lm_weight: float, ctc_weight: float, word_penalty: float
) -> None:
    found = []
    for seed in range(5):
        search, rows_TC = search_of(Beam, seed), rows_of(seed)
        weights = Weights(lm_weight, word_penalty, beam=10**6)
        best = search.best(rows_TC, weights, ctc_weight).tokens()
        assert best == best_of_all(search, rows_TC, weights, ctc_weight)
        found.append(len(best))
    assert len(set(found)) > 1  # not always none, nor always as many as there may be


def best_of_beam(search: Any, rows_TC: np.ndarray, weights: Weights, ctc_weight: float) -> tuple[int, ...]:
    """Return the best finished hypothesis if `weights.beam` of each length are kept by all scores so far."""
    ctc, kept, ended = search.ctc_scorer(rows_TC), [Attended(None, END, search.tree.start)], {}

    def score(node: Any) -> float:
        tokens = node.tokens()
        decoder, (state, last) = Decoder(search.weights, rows_TC), (ctc.start(), BLANK)
        before, of_decoder, begins = decoder.start(), 0.0, 0.0
        for token, previous in zip(tokens, (END, *tokens), strict=False):
            log_probs_1V, _, before = decoder.step(np.array([previous]), before)
            of_decoder += float(log_probs_1V[0, token])
            ((begins,),), state = ctc.extend(state, np.array([last]), np.array([[token]]))
            last = token
        return (1 - ctc_weight) * of_decoder + ctc_weight * float(begins) + float(node.lm)

    for _ in range(len(rows_TC) + 1):
        for node in kept:
            total = (1 - ctc_weight) * spoken(search, rows_TC, node.tokens()) + node.lm
            total += search.tree.end(node.known, weights) + ctc_weight * by_ctc(ctc, node.tokens())
            ended[node.tokens()] = float(total)
        grown = [search.tree.add(node, token, weights) for node in kept for token in (1, 2, 3)]
        kept = sorted(grown, key=score, reverse=True)[: int(weights.beam)]
    return max(ended, key=ended.__getitem__)


@pytest.mark.parametrize(("ctc_weight", "lm_weight"), [(0.0, 0.7), (0.6, 0.0), (0.4, 0.7)])
def test_a_beam_is_kept_by_decoder_ctc_and_language_model(ctc_weight: float, lm_weight: float) -> None:
    for seed in range(4):
        search, rows_TC, weights = search_of(Beam, seed), rows_of(seed), Weights(lm_weight, 0.5, beam=1)
        expected = best_of_beam(search, rows_TC, weights, ctc_weight)
        assert search.best(rows_TC, weights, ctc_weight).tokens() == expected


@pytest.mark.parametrize("seed", [10, 16, 31])
def test_a_reward_for_words_makes_up_for_what_they_cost(seed: int) -> None:
    """All that lives is worse than the best that has ended, until it gets its reward."""
    search, rows_TC = search_of(Beam, seed), rows_of(seed)
    weights = Weights(0.7, -8.0, beam=10**6)
    assert search.best(rows_TC, weights, 0.0).tokens() == best_of_all(search, rows_TC, weights, 0.0)


def test_greedy_takes_the_best_token_until_the_end() -> None:
    ended = 0
    for seed in range(8):
        search, rows_TC = search_of(Greedy, seed), rows_of(seed)
        decoder = Decoder(search.weights, rows_TC)
        state, tokens = decoder.start(), [END]
        while len(tokens) <= NUM_ROWS:
            log_probs_1V, _, state = decoder.step(np.array([tokens[-1]]), state)
            tokens.append(int(log_probs_1V[0].argmax()))
            if tokens[-1] == END:
                ended += 1
                break
        text = "".join(PIECES[token] for token in tokens if token).replace("▁", " ").split()
        words = search.search(rows_TC, DecodingParameters.of("attention-greedy")).words
        assert [word.text for word in words] == text
    assert 0 < ended < 8


def test_words_follow_each_other_where_attention_goes_back() -> None:
    search = search_of(Beam, 1)
    words = search.words_of([(1, 5, 6, -0.1), (2, 2, 3, -0.2), (3, 7, 8, -0.3), (3, 1, 2, -0.4)], 10)
    assert [word.text for word in words] == ["ab", "c", "c"]
    begins, ends = [word.begin_s for word in words], [word.end_s for word in words]
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))
    assert begins[0] <= 5 * FRAME_S < ends[0] <= begins[1] <= 7 * FRAME_S + 1e-9
    assert [word.confidence for word in words] == pytest.approx(np.exp([-0.2, -0.3, -0.4]))


def test_a_weight_of_ctc_that_another_model_was_tuned_with_is_refused_where_there_is_none(tmp_path: Path) -> None:
    search, tuning = search_of(Beam, 1), tmp_path / "tuning.json"
    tuned = DecodingParameters.of("attention-beam", lm_weight=0.1, word_penalty=0, beam=4, ctc_weight=0.3)
    tuning.write_text(format_parameters([tuned]), encoding="utf-8")
    assert TuningFile(tuning).read("attention-beam", search.axes()) == tuned
    assert {axis.name: tuple(axis.values) for axis in search.axes()}["ctc_weight"] == (0.0, 0.3)
    search.resources.acoustic.model.objective.ctc = None
    assert {axis.name: tuple(axis.values) for axis in search.axes()}["ctc_weight"] == (0.0,)
    with pytest.raises(AsrtoolError, match=r"has ctc_weight 0\.3, expected 0, because model\.attention\.ctc_weight"):
        TuningFile(tuning).read("attention-beam", search.axes())


def log_posteriors(num_rows: int, num_tokens: int, seed: int) -> np.ndarray:
    values_TV = np.random.default_rng(seed).standard_normal((num_rows, num_tokens))
    log_probs_TV: np.ndarray = values_TV - np.log(np.exp(values_TV).sum(axis=1, keepdims=True))
    return log_probs_TV


def all_sequences(log_probs_TV: np.ndarray) -> dict[tuple[int, ...], float]:
    """P of each sequence of tokens, summed over its paths."""
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(log_probs_TV.shape[1]), repeat=len(log_probs_TV)):
        tokens = tuple(token for token, _ in itertools.groupby(path) if token != BLANK)
        log_prob = log_probs_TV[np.arange(len(path)), path].sum()
        found[tokens] = found.get(tokens, 0.0) + float(np.exp(log_prob))
    return found


@given(st.integers(1, 5), st.lists(st.integers(1, 2), max_size=4), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_a_beginning_has_all_sequences_that_begin_so(num_rows: int, tokens: list[int], seed: int) -> None:
    log_probs_TV = log_posteriors(num_rows, 3, seed)
    of_all = all_sequences(log_probs_TV)
    scorer = PrefixScorer(log_probs_TV)
    state, last = scorer.start(), BLANK
    for length in range(len(tokens) + 1):
        prefix = tuple(tokens[:length])
        np.testing.assert_allclose(np.exp(scorer.end(state)), [of_all.get(prefix, 0.0)], atol=1e-12)
        begins_1K, states = scorer.extend(state, np.array([last]), np.array([[1, 2]]))
        for k, token in enumerate((1, 2)):
            longer = (*prefix, token)
            expected = sum(prob for found, prob in of_all.items() if found[: length + 1] == longer)
            assert np.exp(begins_1K[0, k]) == pytest.approx(expected, abs=1e-12)
        if length < len(tokens):
            state, last = states.take(np.array([tokens[length] - 1])), tokens[length]


def test_long_utterances_lose_nothing() -> None:
    """Blank and one token, as probable as each other: of 2 ** T paths so many have exactly one token as begin once."""
    num_rows = 1000
    scorer = PrefixScorer(np.full((num_rows, 2), np.log(0.5)))
    begins_1K, states = scorer.extend(scorer.start(), np.array([BLANK]), np.array([[1]]))
    assert begins_1K[0, 0] == pytest.approx(0.0, abs=1e-12)  # all but the path of blanks
    runs = num_rows * (num_rows + 1) / 2  # where one run of the token begins and ends
    assert scorer.end(states)[0] == pytest.approx(np.log(runs) - num_rows * np.log(2.0))
