"""Differences over time against the formula of the HTK book, frame by frame."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.models.acoustic import build_model
from asrtool.models.encoders.deltas import add_deltas
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice


def weighted(feats_TF: np.ndarray, weights: dict[int, float]) -> np.ndarray:
    """Sums over the neighbours of each frame, the first and the last frame being repeated."""
    last = len(feats_TF) - 1
    return np.stack(
        [
            sum(weight * feats_TF[min(max(t + n, 0), last)] for n, weight in weights.items())
            for t in range(len(feats_TF))
        ]
    )


def by_hand(feats_TF: np.ndarray, orders: int) -> np.ndarray:
    first = {n: n / 10 for n in (-2, -1, 0, 1, 2)}
    second: dict[int, float] = {}
    for n, weight in first.items():
        for m, other in first.items():
            second[n + m] = second.get(n + m, 0.0) + weight * other
    return np.concatenate([feats_TF, *[weighted(feats_TF, weights) for weights in (first, second)[:orders]]], axis=1)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(0, 2), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_deltas_are_those_of_each_utterance_alone(lens: list[int], orders: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    feats_NTF = torch.randn(len(lens), max(lens), 3, generator=generator)
    found_NTF = add_deltas(feats_NTF, torch.tensor(lens), orders)
    assert found_NTF.shape == (len(lens), max(lens), 3 * (1 + orders))
    for n, length in enumerate(lens):
        expected_TF = by_hand(feats_NTF[n, :length].double().numpy(), orders)
        np.testing.assert_allclose(found_NTF[n, :length].numpy(), expected_TF, atol=1e-5)


@pytest.mark.parametrize("orders", [0, 1, 2])
def test_a_model_gives_its_encoder_the_deltas_in_training_and_when_it_is_applied(orders: int) -> None:
    torch.manual_seed(1)
    lstm = Choice.of("encoder", "lstm", num_layers=1, hidden_size=4)
    model = build_model(Model(deltas=orders, encoder=lstm), num_features=5, num_tokens=6).eval()
    feats_NTF, lens_N = torch.randn(2, 13, 5), torch.tensor([13, 7])
    hidden_NTC, rows_N = model.encoder(add_deltas(feats_NTF, lens_N, orders), lens_N)
    torch.testing.assert_close(model(feats_NTF, lens_N)[0], model.objective.scores(hidden_NTC))
    targets = torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1])
    expected = model.objective.loss(hidden_NTC, rows_N, *targets).total
    torch.testing.assert_close(model.loss(feats_NTF, lens_N, *targets).total, expected)
