"""CTC against the sum over all paths."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
import torch
from asrtool.models.criterion import ctc_frames_needed, ctc_loss
from hypothesis import given, settings

NUM_TOKENS = 3


def collapse(path: tuple[int, ...]) -> list[int]:
    return [token for token, _ in itertools.groupby(path) if token != 0]


def brute_force(log_probs_TV: torch.Tensor, tokens: list[int]) -> float:
    """-ln of the probability of all paths that spell `tokens`, one by one."""
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
    needed = ctc_frames_needed(tokens)
    for num_frames in (needed - 1, needed):
        if num_frames < 1:
            continue
        log_probs_NTV = torch.zeros(1, num_frames, NUM_TOKENS).log_softmax(-1)
        tokens_NU = torch.tensor([tokens], dtype=torch.int64)
        loss = ctc_loss(log_probs_NTV, torch.tensor([num_frames]), tokens_NU, torch.tensor([len(tokens)]))
        assert bool(torch.isfinite(loss)) == (num_frames >= needed)
