"""CTC against the sum over all paths."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from asrtool.models.objectives.ctc import Ctc
from asrtool.models.objectives.topology import CtcTopology
from asrtool.settings.models import Ctc as CtcSettings

NUM_TOKENS = 3


class GivenScores(Ctc):
    """The hidden rows are the scores."""

    def __init__(self) -> None:
        super().__init__(CtcSettings(), NUM_TOKENS, NUM_TOKENS)

    def scores(self, hidden_NTC: torch.Tensor) -> torch.Tensor:
        return hidden_NTC


def ctc_loss(scores_NTV: torch.Tensor, lens_N: torch.Tensor, *tokens: torch.Tensor) -> torch.Tensor:
    return GivenScores().loss(scores_NTV, lens_N, *tokens).total


def collapse(path: tuple[int, ...]) -> list[int]:
    return [token for token, _ in itertools.groupby(path) if token != 0]


def brute_force(log_probs_TV: torch.Tensor, tokens: list[int]) -> float:
    """-ln of the probability of all paths that give `tokens`, one by one."""
    paths = itertools.product(range(NUM_TOKENS), repeat=len(log_probs_TV))
    sums = [sum(log_probs_TV[t, v] for t, v in enumerate(path)) for path in paths if collapse(path) == tokens]
    return -float(torch.logsumexp(torch.stack(sums), 0))


def test_the_loss_is_the_sum_over_all_paths_of_each_utterance() -> None:
    torch.manual_seed(5)
    lens, targets = [5, 3, 4], [[1, 2], [1], [2, 2]]
    log_probs_NTV = torch.randn(3, 5, NUM_TOKENS).log_softmax(-1)
    tokens_NU = torch.tensor([[1, 2], [1, 0], [2, 2]])
    loss = ctc_loss(log_probs_NTV, torch.tensor(lens), tokens_NU, torch.tensor([2, 1, 2]))
    expected = sum(brute_force(log_probs_NTV[n, : lens[n]], targets[n]) for n in range(3))
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_an_utterance_without_text_is_all_blank() -> None:
    log_probs_NTV = torch.randn(1, 4, NUM_TOKENS).log_softmax(-1)
    loss = ctc_loss(log_probs_NTV, torch.tensor([4]), torch.zeros(1, 0, dtype=torch.int64), torch.tensor([0]))
    assert loss.item() == pytest.approx(-float(log_probs_NTV[0, :, 0].sum()), rel=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, NUM_TOKENS - 1), max_size=4))
def test_the_loss_is_finite_exactly_from_the_frames_needed_on(tokens: list[int]) -> None:
    needed = CtcTopology().rows_needed(tokens)
    for num_frames in (needed - 1, needed):
        if num_frames < 1:
            continue
        log_probs_NTV = torch.zeros(1, num_frames, NUM_TOKENS).log_softmax(-1)
        assert (GivenScores().fits(num_frames, tokens) == "") == (num_frames >= needed)
        tokens_NU = torch.tensor([tokens], dtype=torch.int64)
        loss = ctc_loss(log_probs_NTV, torch.tensor([num_frames]), tokens_NU, torch.tensor([len(tokens)]))
        assert bool(torch.isfinite(loss)) == (num_frames >= needed)


def test_the_loss_is_a_sum_over_the_utterances_and_divided_by_their_tokens() -> None:
    torch.manual_seed(5)
    objective = Ctc(CtcSettings(), 4, NUM_TOKENS)
    hidden_NTC, lens_N = torch.randn(2, 6, 4), torch.tensor([6, 4])
    loss = objective.loss(hidden_NTC, lens_N, torch.tensor([[1, 2, 1], [2, 0, 0]]), torch.tensor([3, 1]))
    first = objective.loss(hidden_NTC[:1], lens_N[:1], torch.tensor([[1, 2, 1]]), torch.tensor([3]))
    second = objective.loss(hidden_NTC[1:, :4], lens_N[1:], torch.tensor([[2]]), torch.tensor([1]))
    torch.testing.assert_close(loss.total, first.total + second.total)
    assert loss.normaliser == objective.normaliser(6, [1, 2, 1]) + objective.normaliser(4, [2]) == 4
    assert not loss.figures
