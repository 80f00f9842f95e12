"""The conformer against slow references, and that neither padding nor other utterances have an influence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from asrtool.models.acoustic import AcousticModel, build_model
from asrtool.models.encoders.conformer import Block, Convolution, Dropout, RelativeAttention, distances
from asrtool.models.encoders.subsampling import ConvSubsampling
from asrtool.settings.models import Conformer as ConformerSettings
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice

SMALL = {"num_layers": 2, "num_heads": 2, "head_size": 4, "feed_forward_size": 12, "kernel_size": 5}


def build(**values: Any) -> AcousticModel:
    """Five features, six tokens."""
    torch.manual_seed(1)
    encoder = Choice.of("encoder", "conformer", **{**SMALL, **values})
    return build_model(Model(encoder=encoder), num_features=5, num_tokens=6)


def softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def by_hand(attention: RelativeAttention, rows_TD: np.ndarray) -> np.ndarray:
    """The equation of the module, for one row and head after another, in float64."""
    weights = {name: value.detach().double().numpy() for name, value in attention.state_dict().items()}

    def project(name: str, rows: np.ndarray) -> np.ndarray:
        return rows @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    num_rows, size = rows_TD.shape
    num, rate = attention.num_heads, 10_000.0 ** (-np.arange(0, size, 2) / size)
    query, key, value = (project(name, rows_TD) for name in ("query", "key", "value"))
    attended = np.zeros_like(rows_TD)
    for head in range(num):
        part = slice(head * size // num, (head + 1) * size // num)
        u, v = weights["content_bias"][head, 0], weights["distance_bias"][head, 0]
        for i in range(num_rows):
            scores = np.empty(num_rows)
            for j in range(num_rows):
                angle = (i - j) * rate
                position = np.stack([np.sin(angle), np.cos(angle)], axis=1).ravel()[:size]
                distance = project("distance", position[None])[0]
                scores[j] = (query[i, part] + u) @ key[j, part] + (query[i, part] + v) @ distance[part]
            attended[i, part] = softmax(scores / np.sqrt(size / num)) @ value[:, part]
    return project("output", attended)


@pytest.mark.parametrize(("num_rows", "size", "num_heads"), [(1, 8, 2), (2, 9, 3), (5, 8, 2)])
def test_attention_is_that_by_content_and_distance(num_rows: int, size: int, num_heads: int) -> None:
    torch.manual_seed(2)
    attention = RelativeAttention(size, num_heads, 0.0)
    torch.nn.init.normal_(attention.content_bias)
    torch.nn.init.normal_(attention.distance_bias)
    rows_NTD = torch.randn(2, num_rows + 2, size)
    lens_N = torch.tensor([num_rows + 2, num_rows])
    is_padding_NT = torch.arange(num_rows + 2) >= lens_N[:, None]
    found_NTD = attention(rows_NTD, distances(num_rows + 2, rows_NTD), is_padding_NT).detach().numpy()
    for n, length in enumerate(lens_N.tolist()):
        expected_TD = by_hand(attention, rows_NTD[n, :length].double().numpy())
        np.testing.assert_allclose(found_NTD[n, :length], expected_TD, atol=1e-5)


@pytest.mark.parametrize(("kernel_size", "before", "after"), [(3, 1, 1), (4, 2, 1), (1, 0, 0)])
def test_the_convolution_is_that_of_each_channel_by_itself(kernel_size: int, before: int, after: int) -> None:
    torch.manual_seed(3)
    module = Convolution(4, kernel_size, 0.0)
    rows_NTD = torch.randn(1, 6, 4)
    found_NTD = module(rows_NTD, torch.zeros(1, 6, dtype=torch.bool))
    gated_TD = module.gate(module.norm(rows_NTD[0]))
    weight_DK, bias_D = module.over_time.weight[:, 0], module.over_time.bias
    padded_TD = torch.cat([torch.zeros(before, 4), gated_TD, torch.zeros(after, 4)])
    sums_TD = torch.stack([(padded_TD[t : t + kernel_size] * weight_DK.T).sum(0) + bias_D for t in range(6)])
    torch.testing.assert_close(found_NTD[0], module.output(sums_TD))


def test_a_block_is_half_a_network_attention_convolution_and_the_other_half() -> None:
    """Equation 1 of the paper; of each branch all is dropped in training that can be."""
    torch.manual_seed(5)
    block = Block(ConformerSettings(**SMALL, dropout=0.5)).eval()  # type: ignore[arg-type]
    rows_NTD, is_padding_NT = torch.randn(2, 7, 8), torch.zeros(2, 7, dtype=torch.bool)
    others = distances(7, rows_NTD), is_padding_NT
    first = rows_NTD + 0.5 * block.before(rows_NTD)
    second = first + block.attention(block.attention_norm(first), *others)
    third = second + block.convolution(second, is_padding_NT)
    torch.testing.assert_close(block(rows_NTD, *others), block.norm(third + 0.5 * block.after(third)))
    for module in block.train().modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 1.0
    torch.testing.assert_close(block(rows_NTD, *others), block.norm(rows_NTD))


def test_weights_of_attention_and_rows_of_frames_are_dropped_in_training() -> None:
    attention, rows_NTD = RelativeAttention(8, 2, dropout=1.0), torch.randn(1, 3, 8)
    attended_NTD = attention(rows_NTD, distances(3, rows_NTD), torch.zeros(1, 3, dtype=torch.bool))
    torch.testing.assert_close(attended_NTD, attention.output.bias.expand(1, 3, 8))
    encoder = build(dropout=0.0).encoder
    encoder.dropout.p = 1.0
    one, other = (encoder(torch.randn(1, 12, 5), torch.tensor([12]))[0] for _ in range(2))
    assert torch.equal(one, other)


@pytest.mark.parametrize("fraction", [0.1, 0.9])
def test_dropout_is_that_of_torch_in_scale_gradient_and_fraction(fraction: float) -> None:
    """Values that one draw decides on are dropped as if by draws of their own."""
    torch.manual_seed(3)
    values = torch.ones(40_000, 4, requires_grad=True)
    kept = Dropout(fraction)(values)
    kept.sum().backward()
    np.testing.assert_array_equal(values.grad, kept.detach())
    np.testing.assert_allclose(kept.detach()[kept > 0], 1 / (1 - fraction), rtol=1e-4)
    is_dropped = (kept == 0).double()
    deviation = (fraction * (1 - fraction) / 40_000) ** 0.5
    np.testing.assert_allclose(is_dropped.mean(0), fraction, atol=4 * deviation)
    np.testing.assert_allclose(torch.corrcoef(is_dropped.T), np.eye(4), atol=4 / 40_000**0.5)


def test_dropout_keeps_shape_type_and_order_of_values() -> None:
    torch.manual_seed(3)
    values = torch.arange(1, 16, dtype=torch.bfloat16).view(3, 5).T
    kept = Dropout(0.5)(values)
    assert (kept.shape, kept.dtype) == (values.shape, values.dtype)
    assert torch.equal(kept, torch.where(kept == 0, 0, 2 * values))
    assert 0 < (kept == 0).sum() < 15
    torch.manual_seed(3)
    assert torch.equal(Dropout(0.5)(values), kept)
    assert Dropout(0.5).eval()(values) is values


@pytest.mark.parametrize("by", [1, 2, 3, 4])
def test_the_subsampling_is_torchs_convolutions_on_each_utterance_alone(by: int) -> None:
    torch.manual_seed(4)
    module = ConvSubsampling(7, 3, 5, by)
    for num_frames in range(1, 12):
        feats_NTF = torch.full((1, 13, 7), 100.0)
        feats_NTF[0, :num_frames] = torch.randn(num_frames, 7)
        hidden = module.second(module.first(feats_NTF[:, None, :num_frames]).relu()).relu()
        expected_NTD = module.output(hidden.transpose(1, 2).flatten(2))
        assert expected_NTD.shape[1] == -(-num_frames // by)
        found_NTD = module(feats_NTF, torch.tensor([num_frames]))
        torch.testing.assert_close(found_NTD[:, : expected_NTD.shape[1]], expected_NTD)
