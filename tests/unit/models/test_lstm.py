"""The BiLSTM against torch's packed sequences, and its independence of padding."""

from __future__ import annotations

import pytest
import torch

from asrtool.models.acoustic import AcousticModel, build_model
from asrtool.models.lstm import BiLstmLayer
from asrtool.models.settings import Model
from asrtool.settings import Choice

LENS = [17, 5, 12, 1]


def build(num_layers: int = 2, dropout: float = 0.0) -> AcousticModel:
    """Four features, six tokens, a row for every three frames."""
    torch.manual_seed(1)
    lstm = Choice.of("encoder", "lstm", num_layers=num_layers, hidden_size=7, stack_frames=3, dropout=dropout)
    return build_model(Model(encoder=lstm), num_features=4, num_tokens=6)


def padded(lens: list[int], num_features: int, fill: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    feats = torch.full((len(lens), max(lens), num_features), fill)
    for n, length in enumerate(lens):
        feats[n, :length] = torch.randn(length, num_features, generator=generator)
    return feats, torch.tensor(lens)


def packed_lstm(layer: BiLstmLayer) -> torch.nn.LSTM:
    """torch's own bidirectional LSTM with the same weights."""
    lstm = torch.nn.LSTM(layer.forward_lstm.input_size, layer.forward_lstm.hidden_size, bidirectional=True)
    weights = dict(layer.forward_lstm.state_dict())
    weights |= {f"{name}_reverse": value for name, value in layer.backward_lstm.state_dict().items()}
    lstm.load_state_dict(weights)
    return lstm


def test_the_model_equals_torchs_packed_bidirectional_lstm_in_outputs_and_gradients() -> None:
    model = build()
    feats_NTF, lens_N = padded(LENS, 4)
    log_probs_NTV, out_lens_N = model(feats_NTF, lens_N)
    assert out_lens_N.tolist() == [6, 2, 4, 1]

    stacked = torch.nn.functional.pad(feats_NTF, (0, 0, 0, 1)).reshape(4, 6, 12)
    lstms = [packed_lstm(layer) for layer in model.encoder.layers]
    hidden = stacked
    for lstm, norm in zip(lstms, model.encoder.norms, strict=True):
        packed = torch.nn.utils.rnn.pack_padded_sequence(hidden, out_lens_N, batch_first=True, enforce_sorted=False)
        hidden, _ = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
        hidden = norm(hidden)
    expected_NTV = model.objective.output(hidden).log_softmax(-1)

    inside = (torch.arange(6) < out_lens_N[:, None])[:, :, None]
    torch.testing.assert_close(log_probs_NTV * inside, expected_NTV * inside)
    weight_NTV = torch.randn(log_probs_NTV.shape) * inside
    (log_probs_NTV * weight_NTV).sum().backward()
    (expected_NTV * weight_NTV).sum().backward()
    for layer, lstm in zip(model.encoder.layers, lstms, strict=True):
        torch.testing.assert_close(layer.forward_lstm.weight_hh_l0.grad, lstm.weight_hh_l0.grad)
        torch.testing.assert_close(layer.backward_lstm.weight_ih_l0.grad, lstm.weight_ih_l0_reverse.grad)


@pytest.mark.parametrize("fill", [0.0, 1e3])
def test_an_utterance_alone_and_in_a_padded_batch_gives_the_same(fill: float) -> None:
    model = build()
    feats_NTF, lens_N = padded(LENS, 4, fill)
    log_probs_NTV, out_lens_N = model(feats_NTF, lens_N)
    for n, length in enumerate(LENS):
        alone_1TV, _ = model(feats_NTF[n : n + 1, :length], lens_N[n : n + 1])
        torch.testing.assert_close(log_probs_NTV[n, : out_lens_N[n]], alone_1TV[0])


def test_the_order_of_utterances_does_not_matter() -> None:
    model = build()
    feats_NTF, lens_N = padded(LENS, 4)
    order = torch.tensor([2, 0, 3, 1])
    one, _ = model(feats_NTF, lens_N)
    other, _ = model(feats_NTF[order], lens_N[order])
    for position, n in enumerate(order.tolist()):
        num_rows = -(-LENS[n] // 3)
        torch.testing.assert_close(other[position, :num_rows], one[n, :num_rows])


def test_log_probabilities_are_float32_and_sum_to_one_under_bf16() -> None:
    model = build()
    with torch.autocast("cpu", torch.bfloat16):
        log_probs_NTV, _ = model(*padded(LENS, 4))
    assert log_probs_NTV.dtype == torch.float32
    torch.testing.assert_close(log_probs_NTV.exp().sum(-1), torch.ones(4, 6))


def test_output_lens_are_the_lengths_of_the_outputs() -> None:
    model = build()
    for length in range(1, 10):
        log_probs_NTV, lens_N = model(*padded([length], 4))
        assert log_probs_NTV.shape[1] == lens_N.item() == model.encoder.output_lens(torch.tensor([length])).item()


def test_dropout_acts_in_training_only() -> None:
    model = build(num_layers=1, dropout=0.5)
    batch = padded(LENS, 4)
    assert not torch.equal(model(*batch)[0], model(*batch)[0])
    model.eval()
    assert torch.equal(model(*batch)[0], model(*batch)[0])
