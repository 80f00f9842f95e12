"""Deep Speech 2 and its normalisation against torch's layers on the real frames alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from asrtool.distributed.weights.flat import FlatWeights
from asrtool.models.acoustic import AcousticModel, build_model
from asrtool.models.encoders.deepspeech2 import Convolution, Lookahead, MaskedBatchNorm
from asrtool.models.encoders.subsampling import is_padding
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice

SMALL = {"num_channels": 3, "num_layers": 2, "hidden_size": 4, "dropout": 0.0}


def build(**values: Any) -> AcousticModel:
    """Nine features, six tokens."""
    torch.manual_seed(1)
    encoder = Choice.of("encoder", "deepspeech2", **{**SMALL, **values})
    return build_model(Model(encoder=encoder), num_features=9, num_tokens=6)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_normalisation_is_torchs_on_the_real_frames(lens: list[int], seed: int) -> None:
    if sum(lens) == 1:
        lens = [2]  # torch refuses a single value
    generator = torch.Generator().manual_seed(seed)
    ours, torchs = MaskedBatchNorm(3), nn.BatchNorm1d(3)
    is_padding_NT = is_padding(torch.tensor(lens), max(lens))
    for _ in range(3):
        values_NTC = 5 + 3 * torch.randn(len(lens), max(lens), 3, generator=generator)
        values_NTC[is_padding_NT] = torch.nan
        found_NTC = ours(values_NTC, is_padding_NT)
        torch.testing.assert_close(found_NTC[~is_padding_NT], torchs(values_NTC[~is_padding_NT]), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.running_mean_C, torchs.running_mean)
    torch.testing.assert_close(ours.running_var_C, torchs.running_var)
    ours.eval()
    torchs.eval()
    torch.testing.assert_close(ours(values_NTC, is_padding_NT)[~is_padding_NT], torchs(values_NTC[~is_padding_NT]))


def test_running_statistics_lie_among_the_weights_that_learners_average() -> None:
    model = build()
    flat = FlatWeights(model)
    before_B = flat.weights_P[flat.num_weights :].clone()
    model(torch.randn(2, 11, 9), torch.tensor([11, 7]))
    flat.fetch_buffers()
    after_B = flat.weights_P[flat.num_weights :]
    names = [name for name, _ in model.named_buffers()]
    assert len(names) == len(flat.buffers) == 2 * (2 + 2)  # of two convolutions and two layers
    assert not torch.equal(before_B, after_B)
    own = [buffer for name, buffer in model.named_buffers() if name.endswith("running_mean_C")]
    assert all(buffer.any() for buffer in own)
    after_B.fill_(0.5)  # as where a mean takes their place
    assert all((buffer == 0.5).all() for buffer in own)


def test_a_single_frame_has_no_variance_and_gives_numbers() -> None:
    norm = MaskedBatchNorm(2)
    values_NTC = torch.randn(1, 1, 2, requires_grad=True)
    found_NTC = norm(values_NTC, torch.zeros(1, 1, dtype=torch.bool))
    found_NTC.sum().backward()
    for numbers in (found_NTC, norm.running_mean_C, values_NTC.grad):
        assert numbers.isfinite().all()
    assert norm.running_var_C.tolist() == [1.0, 1.0]


def test_normalisation_is_float32_under_bf16() -> None:
    """Inputs are bf16, as from a convolution under autocast; in bf16 the result would be off by a hundredth."""
    torch.manual_seed(4)
    norm = MaskedBatchNorm(2)
    values_NTC, is_padding_NT = (8 + torch.randn(4, 50, 2)).bfloat16(), torch.zeros(4, 50, dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16):
        found_NTC = norm(values_NTC, is_padding_NT)
    assert found_NTC.dtype == torch.float32
    exact_NTC = values_NTC.double()
    mean_C, var_C = exact_NTC.mean((0, 1)), exact_NTC.var((0, 1), unbiased=False)
    torch.testing.assert_close(found_NTC.double(), (exact_NTC - mean_C) / (var_C + 1e-5).sqrt(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(norm.running_mean_C.double(), 0.1 * mean_C, atol=1e-6, rtol=1e-6)


def test_a_frozen_normalisation_keeps_its_statistics_and_goes_by_them() -> None:
    torch.manual_seed(5)
    norm = MaskedBatchNorm(2)
    values_NTC, is_padding_NT = 3 + 2 * torch.randn(4, 50, 2), torch.zeros(4, 50, dtype=torch.bool)
    norm(values_NTC, is_padding_NT)
    for parameter in norm.parameters():
        parameter.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    found_NTC = norm.train()(values_NTC + 1, is_padding_NT)
    assert all(torch.equal(tensor, before[name]) for name, tensor in norm.state_dict().items())
    assert torch.equal(found_NTC, norm.eval()(values_NTC + 1, is_padding_NT))


def test_a_convolution_is_torchs_on_an_utterance_alone() -> None:
    torch.manual_seed(3)
    module = Convolution(1, 3, (11, 41), (2, 2)).eval()
    for num_frames in (1, 2, 7, 12):
        values_NTFC = torch.full((1, 12, 9, 1), 100.0)
        values_NTFC[:, :num_frames] = torch.randn(1, num_frames, 9, 1)
        num_rows = -(-num_frames // 2)
        seen = module.convolution(values_NTFC[:, :num_frames].permute(0, 3, 1, 2))
        assert seen.shape[2:] == (num_rows, 5)
        expected = (seen / (1 + 1e-5) ** 0.5).clamp(0, 20).permute(0, 2, 3, 1)
        found = module(values_NTFC, torch.tensor([num_frames]), torch.tensor([num_rows]))
        torch.testing.assert_close(found[:, :num_rows], expected)


def test_a_convolution_gives_0_to_20() -> None:
    torch.manual_seed(3)
    module = Convolution(1, 3, (11, 41), (2, 2))
    nn.init.constant_(module.norm.weight, 30.0)
    lens_N = torch.tensor([8])
    given_NTFC = module(torch.randn(1, 8, 9, 1), lens_N, lens_N // 2)
    assert (given_NTFC.min(), given_NTFC.max()) == (0.0, 20.0)


def test_what_is_behind_each_layer_is_dropped_in_training() -> None:
    model = build(num_layers=1)
    model.encoder.dropout.p = 1.0
    lens_N = torch.tensor([11])
    one, other = (model(torch.randn(1, 11, 9), lens_N)[0] for _ in range(2))
    assert torch.equal(one, other)
    model.eval()
    assert not torch.equal(model(torch.randn(1, 11, 9), lens_N)[0], one)


def test_lookahead_is_the_weighted_sum_of_the_next_rows() -> None:
    module = Lookahead(2, 3)
    rows_TNC = torch.rand(5, 1, 2)
    nn.init.uniform_(module.convolution.weight)
    found_TNC = module(rows_TNC, torch.tensor([[False]] * 4 + [[True]]))
    for t in range(4):
        window_KC = rows_TNC[t : min(t + 4, 4), 0]
        expected_C = (window_KC * module.convolution.weight[:, 0, : len(window_KC)].T).sum(0)
        torch.testing.assert_close(found_TNC[t, 0], expected_C)


@pytest.mark.parametrize(("lookahead", "num_same"), [(0, 13), (4, 9)])
def test_in_one_direction_no_row_depends_on_frames_that_the_convolutions_do_not_see(
    lookahead: int, num_same: int
) -> None:
    """Row t sees 2 t + 5 frames, and by the second convolution those of 5 rows more: 2 t + 15."""
    model = build(bidirectional=False, lookahead=lookahead).eval()
    feats_NTF = torch.randn(1, 60, 9)
    later_NTF = feats_NTF.clone()
    later_NTF[:, 41:] += 10.0
    one, other = (model(values, torch.tensor([60]))[0][0] for values in (feats_NTF, later_NTF))
    torch.testing.assert_close(one[:num_same], other[:num_same])
    assert not torch.isclose(one[num_same], other[num_same]).all()
