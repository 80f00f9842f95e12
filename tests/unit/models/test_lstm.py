"""The LSTM encoder against torch's packed sequences, and its independence of padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from in_bf16 import in_bf16

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel, build_model
from asrtool.models.encoders.lstm import LstmLayer, SequenceDropout
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config

CONF = Path(__file__).resolve().parents[3] / "recipes" / "swbd" / "conf"
# Warning of torch: a projection misses the fused kernels of the CPU.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")
LENS = [17, 5, 12, 1]


def build(**values: Any) -> AcousticModel:
    """Four features, six tokens, a row for every three frames; `values` are those of [model.lstm]."""
    torch.manual_seed(1)
    lstm = Choice.of("encoder", "lstm", **{"num_layers": 2, "hidden_size": 7, "dropout": 0.0, **values})
    return build_model(Model(encoder=lstm), num_features=4, num_tokens=6)


def padded(lens: list[int], num_features: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    feats = torch.zeros(len(lens), max(lens), num_features)
    for n, length in enumerate(lens):
        feats[n, :length] = torch.randn(length, num_features, generator=generator)
    return feats, torch.tensor(lens)


def torch_lstm(layer: LstmLayer) -> torch.nn.LSTM:
    """torch's own LSTM, of both directions or one, with the same weights."""
    ahead, back = layer.forward_lstm, layer.backward_lstm
    lstm = torch.nn.LSTM(ahead.input_size, ahead.hidden_size, proj_size=ahead.proj_size, bidirectional=back is not None)
    weights = dict(ahead.state_dict())
    weights |= {f"{name}_reverse": value for name, value in back.state_dict().items()} if back else {}
    lstm.load_state_dict(weights)
    return lstm


KINDS = [
    {},
    {"bidirectional": False},
    {"projection_size": 4, "layer_norm": False},
    {"projection_size": 3, "bottleneck_size": 5, "bidirectional": False},
    {"num_layers": 3, "residual": True},
    {"conv_channels": 3},
]


@pytest.mark.parametrize("values", KINDS)
def test_the_model_equals_torchs_packed_lstm_in_outputs_and_gradients(values: dict[str, Any]) -> None:
    model = build(**values)
    feats_NTF, lens_N = padded(LENS, 4)
    log_probs_NTV, out_lens_N = model(feats_NTF, lens_N)
    assert out_lens_N.tolist() == [6, 2, 4, 1]

    lstms = [torch_lstm(layer) for layer in model.encoder.layers]
    hidden = torch.nn.functional.pad(feats_NTF, (0, 0, 0, 1)).reshape(4, 6, 12)
    if "conv_channels" in values:
        hidden = model.encoder.rows_norm(model.encoder.rows(feats_NTF, lens_N))
    for number, (lstm, norm) in enumerate(zip(lstms, model.encoder.norms, strict=True)):
        before = hidden
        packed = torch.nn.utils.rnn.pack_padded_sequence(hidden, out_lens_N, batch_first=True, enforce_sorted=False)
        hidden, _ = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
        hidden = norm(hidden) + (before if values.get("residual") and number else 0.0)
    if "bottleneck_size" in values:
        bottleneck = model.encoder.bottleneck
        hidden = hidden @ bottleneck.weight.T + bottleneck.bias
    expected_NTV = model.objective.output(hidden).log_softmax(-1)

    inside = (torch.arange(6) < out_lens_N[:, None])[:, :, None]
    torch.testing.assert_close(log_probs_NTV * inside, expected_NTV * inside)
    weight_NTV = torch.randn(log_probs_NTV.shape) * inside
    (log_probs_NTV * weight_NTV).sum().backward()
    (expected_NTV * weight_NTV).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    for layer, lstm in zip(model.encoder.layers, lstms, strict=True):
        torch.testing.assert_close(layer.forward_lstm.weight_hh_l0.grad, lstm.weight_hh_l0.grad)
        if layer.backward_lstm is not None:
            torch.testing.assert_close(layer.backward_lstm.weight_ih_l0.grad, lstm.weight_ih_l0_reverse.grad)


def test_convolutions_need_whole_utterances_and_at_most_four_frames_a_row() -> None:
    model = build(bidirectional=False, conv_channels=3)
    with pytest.raises(AsrtoolError, match=r"needs whole utterances.* conv_channels = 0"):
        model.check_streams()
    build(stack_frames=4, conv_channels=1)
    with pytest.raises(ValueError, match="stack_frames with conv_channels is 5, expected 1 to 4"):
        build(stack_frames=5, conv_channels=1)


@pytest.mark.parametrize("values", [{}, {"projection_size": 3, "bidirectional": False}])
def test_dropped_weights_are_those_of_an_lstm_with_zeros_for_all_frames(values: dict[str, Any]) -> None:
    model = build(num_layers=1, weight_drop=0.5, **values)
    layer = model.encoder.layers[0]
    feats_TNF = torch.randn(5, 2, 12)
    backward_TN = torch.arange(4, -1, -1)[:, None].expand(5, 2)
    plain_TNC = layer.eval()(feats_TNF, backward_TN)
    torch.manual_seed(7)
    found_TNC = layer.train()(feats_TNF, backward_TN)
    expected = torch_lstm(layer)
    torch.manual_seed(7)
    for name in ("weight_hh_l0", "weight_hh_l0_reverse")[: 1 + expected.bidirectional]:
        weight = getattr(expected, name)
        kept = torch.nn.functional.dropout(torch.ones_like(weight), 0.5) > 0
        assert 0 < int(kept.sum()) < kept.numel()
        weight.data = torch.where(kept, 2 * weight.data, 0.0)
    torch.testing.assert_close(found_TNC, expected(feats_TNF)[0])
    assert not torch.isclose(found_TNC, plain_TNC).all()
    found_TNC.square().sum().backward()
    grad, weight = layer.forward_lstm.weight_hh_l0.grad, expected.weight_hh_l0
    assert torch.equal(grad != 0, weight != 0)


def test_sequence_dropout_zeroes_the_same_values_in_all_frames_of_an_utterance() -> None:
    dropout = SequenceDropout(0.5)
    values_TNC = 1 + torch.rand(6, 3, 40)
    dropped_TNC = dropout(values_TNC)
    kept_TNC = dropped_TNC != 0
    assert torch.equal(kept_TNC, kept_TNC[:1].expand(6, 3, 40))
    assert not torch.equal(kept_TNC[:, 0], kept_TNC[:, 1])
    torch.testing.assert_close(dropped_TNC, torch.where(kept_TNC, 2 * values_TNC, 0.0))
    assert torch.equal(dropout.eval()(values_TNC), values_TNC)
    assert isinstance(build(sequence_dropout=True).encoder.dropout, SequenceDropout)


@pytest.mark.parametrize("values", [{"dropout": 0.5}, {"sequence_dropout": True, "dropout": 0.3}, {"weight_drop": 0.4}])
def test_what_is_dropped_follows_the_seed_and_nothing_is_when_a_model_is_applied(values: dict[str, Any]) -> None:
    model, batch = build(**values), padded(LENS, 4)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(model(*batch)[0])
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    torch.testing.assert_close(model.eval()(*batch)[0], build().eval()(*batch)[0])


def test_the_papers_model_has_43_15_million_parameters() -> None:
    """Zhang et al. (arXiv 1904.04956): 260 inputs, 32,000 outputs, two vectors of biases as in cuDNN and torch."""
    config = load_config([CONF / "lstm_paper.toml"])
    encoder = config.model.encoder
    assert (encoder.settings.num_layers, encoder.settings.hidden_size, encoder.settings.bottleneck_size) == (
        6,
        512,
        256,
    )
    assert (1 + config.model.deltas) * config.features.num_features == 120
    model = build_model(Model(encoder=encoder), num_features=260, num_tokens=32_000)
    num = sum(parameter.numel() for parameter in model.parameters())
    assert num == 6 * 2 * 4 * 512 * 514 + 2 * 4 * 512 * (260 + 5 * 1024) + 256 * 1025 + 32_000 * 257
    assert f"{num / 1e6:.2f}" == "43.15"


def test_log_probabilities_are_float32_and_sum_to_one_under_bf16() -> None:
    model = build()
    with in_bf16():
        log_probs_NTV, _ = model(*padded(LENS, 4))
    assert log_probs_NTV.dtype == torch.float32
    torch.testing.assert_close(log_probs_NTV.exp().sum(-1), torch.ones(4, 6))
