"""All encoders and objectives: padding, gradients, bf16, deltas, and the parts that devices compute."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from in_bf16 import in_bf16
from torch import Tensor, nn

from asrtool.models.acoustic import AcousticModel, Encoder, build_model
from asrtool.models.encoders.deltas import add_deltas
from asrtool.models.encoders.stages import Part, run_parts, split_evenly
from asrtool.models.files.torch_file import IS_TORCH_1
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice


def smallest_largest(sizes: Sequence[int], num: int) -> int:
    """Return the smallest largest part of all ways to cut, by trying them."""
    ways = itertools.combinations(range(1, len(sizes)), num - 1)
    groups = ([sizes[i:j] for i, j in itertools.pairwise((0, *way, len(sizes)))] for way in ways)
    return min(max(map(sum, group)) for group in groups if all(map(sum, group)))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 5))
def test_the_largest_group_is_as_small_as_any_way_to_cut_makes_it(sizes: list[int], num: int) -> None:
    num = min(num, sum(size > 0 for size in sizes))
    if num:
        groups = [sizes[cut] for cut in split_evenly(sizes, num)]
        assert list(itertools.chain(*groups)) == sizes
        assert len(groups) == num
        assert all(map(sum, groups))
        assert max(map(sum, groups)) == smallest_largest(sizes, num)


@pytest.mark.parametrize(
    ("name", "values"), [("lstm", {}), ("lstm", {"conv_channels": 4}), ("deepspeech2", {}), ("conformer", {})]
)
def test_the_parts_of_an_encoder_have_all_its_weights_once(name: str, values: dict[str, int]) -> None:
    encoder = build_model(Model(encoder=Choice.of("encoder", name, num_layers=3, **values)), 16, 20).encoder
    parts = encoder.parts()
    weights = [weight for part in parts for module in part.modules for weight in module.parameters()]
    assert {id(weight) for weight in weights} == {id(weight) for weight in encoder.parameters()}
    assert len(weights) == len(list(encoder.parameters()))
    assert sum(part.num_weights() for part in parts) == sum(weight.numel() for weight in weights)
    assert sum(part.num_weights() > 0 for part in parts) >= 3


class Whole(Encoder):
    """Encoder without `parts`."""

    def __init__(self) -> None:
        super().__init__()
        self.subsampling, self.output_size = 1, 2
        self.linear = nn.Linear(3, 2)

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(feats_NTF), feat_lens_N


def test_an_encoder_that_says_nothing_of_parts_is_one() -> None:
    encoder, feats_NTF, lens_N = Whole(), torch.randn(2, 4, 3), torch.tensor([4, 2])
    (part,) = encoder.parts()
    assert part.num_weights() == 8
    hidden_NTC, lens = run_parts([part], feats_NTF, lens_N)
    assert torch.equal(hidden_NTC, encoder(feats_NTF, lens_N)[0])
    assert lens is lens_N


def test_parts_are_computed_in_order() -> None:
    parts = [Part(lambda x: (x + 1,)), Part(lambda x: (x * 10,))]
    assert run_parts(parts, torch.tensor(1))[0] == 20


def build(objective: Choice, encoder: str, **values: Any) -> AcousticModel:
    """Nine features, six tokens; nothing is dropped."""
    torch.manual_seed(1)
    if encoder == "conformer":
        values |= {"num_heads": 2, "head_size": 4, "feed_forward_size": 12, "kernel_size": 5}
    else:
        values |= {"hidden_size": 7}
    if encoder == "deepspeech2":
        values |= {"num_channels": 3}
    chosen = Choice.of("encoder", encoder, num_layers=2, dropout=0.0, **values)
    return build_model(Model(encoder=chosen, objective=objective), num_features=9, num_tokens=6)


CTC = Choice.of("objective", "ctc")
ENCODERS = [
    ("lstm", {}),
    ("lstm", {"bidirectional": False}),
    ("lstm", {"projection_size": 3, "bottleneck_size": 5, "layer_norm": False}),
    ("lstm", {"conv_channels": 3, "residual": True}),
    ("deepspeech2", {}),
    ("deepspeech2", {"bidirectional": False, "lookahead": 2}),
    ("conformer", {}),
]
# torch: a projection misses the fused kernels of the CPU
with_projection = pytest.mark.filterwarnings("ignore:LSTM with projections")


@with_projection
@pytest.mark.parametrize(("name", "values"), ENCODERS)
@pytest.mark.parametrize("fill", [0.0, 1e3, math.nan, math.inf])
def test_an_utterance_alone_and_in_a_padded_batch_gives_the_same(
    name: str, values: dict[str, Any], fill: float
) -> None:
    model, lens = build(CTC, name, **values), [17, 5, 12, 1]
    feats_NTF = torch.full((4, 17, 9), fill)
    for n, length in enumerate(lens):
        feats_NTF[n, :length] = torch.randn(length, 9)
    model(feats_NTF, torch.tensor(lens))  # running statistics that are not those of the beginning
    model.eval()
    scores_NTV, lens_N = model(feats_NTF, torch.tensor(lens))
    assert lens_N.tolist() == [-(-length // model.encoder.subsampling) for length in lens]
    for n, length in enumerate(lens):
        alone_1TV, _ = model(feats_NTF[n : n + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(scores_NTV[n, : lens_N[n]], alone_1TV[0], atol=1e-5, rtol=1e-4)


OF_TOKENS = {"sampling": 0.3, "weight_drop": 0.2, "hidden_size": 8}


@with_projection
@pytest.mark.parametrize(
    ("name", "values", "objective"),
    [
        *((*each, CTC) for each in ENCODERS),
        ("lstm", {}, Choice.of("objective", "transducer", joint_size=8)),
        ("lstm", {}, Choice.of("objective", "attention", ctc_weight=0.0, **OF_TOKENS)),
        ("lstm", {}, Choice.of("objective", "attention", ctc_weight=0.3, **OF_TOKENS)),
    ],
)
def test_all_parameters_get_a_gradient_and_bf16_gives_nearly_the_same_loss(
    name: str, values: dict[str, Any], objective: Choice
) -> None:
    model = build(objective, name, **values)
    batch = torch.randn(2, 21, 9), torch.tensor([21, 12]), torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1])
    model.loss(*batch).total.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    model.eval()
    if IS_TORCH_1 and any(isinstance(module, torch.nn.LayerNorm) for module in model.modules()):
        return  # the layer normalisation of torch 1.13 takes no bf16 beside weights of fp32
    with in_bf16():
        found = model.loss(*batch).total.item()
    assert found == pytest.approx(model.loss(*batch).total.item(), rel=0.02)


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
