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


def collapse(path: tuple[int, ...]) -> list[int]:
    return [token for token, _ in itertools.groupby(path) if token != 0]


def brute_force(log_probs_TV: torch.Tensor, tokens: list[int]) -> float:
    """-ln of the probability of all paths that give `tokens`, one by one."""
    paths = itertools.product(range(NUM_TOKENS), repeat=len(log_probs_TV))
    sums = [sum(log_probs_TV[t, v] for t, v in enumerate(path)) for path in paths if collapse(path) == tokens]
    return -float(torch.logsumexp(torch.stack(sums), 0))


def test_the_loss_is_the_sum_over_all_paths_of_each_utterance() -> None:
    torch.manual_seed(5)
    lens, targets = [5, 3, 4, 2], [[1, 2], [1], [2, 2], []]
    log_probs_NTV = torch.randn(4, 5, NUM_TOKENS).log_softmax(-1)
    tokens_NU = torch.tensor([[1, 2], [1, 0], [2, 2], [0, 0]])
    loss = GivenScores().loss(log_probs_NTV, torch.tensor(lens), tokens_NU, torch.tensor([2, 1, 2, 0]))
    expected = sum(brute_force(log_probs_NTV[n, : lens[n]], targets[n]) for n in range(4))
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)
    assert (loss.normaliser, loss.figures) == (5, {})


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
        loss = GivenScores().loss(log_probs_NTV, torch.tensor([num_frames]), tokens_NU, torch.tensor([len(tokens)]))
        assert bool(torch.isfinite(loss.total)) == (num_frames >= needed)
