"""The encoder-decoder against its decoder in NumPy, and what training adds to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from asrtool.decode.search.attention import Decoder
from asrtool.models.objectives.attention import END, Attention
from asrtool.settings.models import Attention as AttentionSettings

PLAIN = {"hidden_size": 6, "attention_size": 5, "kernel_size": 3, "dropout": 0.0, "ctc_weight": 0.0}
TEXTS, LENS = [[3, 1, 3], [6], []], [7, 3, 4]


def objective_of(seed: int = 3, **settings: float) -> Attention:
    torch.manual_seed(seed)
    objective = Attention(AttentionSettings(**{**PLAIN, **settings}), 4, 7)  # type: ignore[arg-type]
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.7)  # so that nothing is near 0, and attention not even
    return objective


def batch_of(texts: Sequence[Sequence[int]], lens: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Hidden rows with NaN for padding, their lengths, targets, their lengths."""
    generator = torch.Generator().manual_seed(1)
    hidden_NTC = torch.full((len(lens), max(lens) + 2, 4), torch.nan)
    for n, num in enumerate(lens):
        hidden_NTC[n, :num] = torch.randn(num, 4, generator=generator)
    targets_NU = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.int64)
    for n, text in enumerate(texts):
        targets_NU[n, : len(text)] = torch.tensor(text, dtype=torch.int64)
    return hidden_NTC, torch.tensor(lens), targets_NU, torch.tensor([len(text) for text in texts])


def log_probs(objective: Attention, rows_TC: np.ndarray, text: Sequence[int]) -> np.ndarray:
    """(U + 1, V) of what is before each token and behind the last one, by the decoder of the search."""
    weights = {name: value.detach().numpy() for name, value in objective.state_dict().items()}
    decoder = Decoder(weights, rows_TC)
    state, found = decoder.start(), []
    for token in [END, *text]:
        log_probs_1V, weights_1T, state = decoder.step(np.array([token]), state)
        assert weights_1T.sum() == pytest.approx(1.0, abs=1e-5)
        found.append(log_probs_1V[0])
    return np.stack(found)


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_the_loss_is_that_of_the_decoder_in_numpy_whatever_the_padding(kernel_size: int) -> None:
    objective = objective_of(kernel_size=kernel_size).eval()
    batch = batch_of(TEXTS, LENS)
    loss = objective.loss(*batch)
    expected, errors = 0.0, 0
    for n, text in enumerate(TEXTS):
        wanted = [*text, END]
        log_probs_UV = log_probs(objective, batch[0][n, : LENS[n]].numpy(), text)
        expected -= float(log_probs_UV[np.arange(len(wanted)), wanted].sum())
        errors += int((log_probs_UV.argmax(axis=1) != wanted).sum())
    assert float(loss.total.detach()) == pytest.approx(expected, rel=1e-5)
    assert loss.figures == {"errors": errors}
    assert 0 < errors < 7
    assert loss.normaliser == sum(objective.normaliser(0, text) for text in TEXTS) == 7


def test_each_energy_knows_where_it_was_looked_before() -> None:
    """Without the convolution the second weights would equal the first ones for the same query."""
    objective = objective_of()
    torch.nn.init.zeros_(objective.energies.query.weight)
    rows_TC = np.random.default_rng(2).standard_normal((6, 4)).astype(np.float32)
    weights = {name: value.detach().numpy() for name, value in objective.state_dict().items()}
    decoder = Decoder(weights, rows_TC)
    _, first_1T, state = decoder.step(np.array([END]), decoder.start())
    _, second_1T, _ = decoder.step(np.array([END]), state)
    assert np.abs(first_1T - second_1T).max() > 0.01


def test_labels_are_smoothed_in_training_alone() -> None:
    objective = objective_of(label_smoothing=0.3)
    batch = batch_of(TEXTS, LENS)
    expected = 0.0
    for n, text in enumerate(TEXTS):
        wanted = [*text, END]
        log_probs_UV = log_probs(objective, batch[0][n, : LENS[n]].numpy(), text)
        expected -= 0.7 * log_probs_UV[np.arange(len(wanted)), wanted].sum() + 0.3 * log_probs_UV.mean(axis=1).sum()
    assert float(objective.loss(*batch).total.detach()) == pytest.approx(float(expected), rel=1e-5)
    plain = objective.eval().loss(*batch).total
    assert abs(float(plain.detach()) - float(expected)) > 0.1


def test_its_loss_and_that_of_ctc_are_added_by_weight() -> None:
    objective = objective_of(ctc_weight=0.25).eval()
    texts, lens = [[3, 1, 3], [6]], [7, 3]
    batch = batch_of(texts, lens)
    both = objective.loss(*batch)
    assert objective.ctc is not None
    ctc = objective.ctc.loss(batch[0].nan_to_num(), *batch[1:]).total
    objective.ctc, by_ctc = None, float(ctc.detach())
    alone = float(objective.loss(*batch).total.detach())
    assert float(both.total.detach()) == pytest.approx(0.75 * alone + 0.25 * by_ctc, rel=1e-5)
    assert both.figures["ctc"] == pytest.approx(by_ctc)


def test_drawn_tokens_are_those_of_the_model() -> None:
    """A model that is sure of token 5 whatever came before: with every token drawn, what was said has no influence."""
    objective = objective_of(sampling=0.9)
    torch.nn.init.constant_(objective.output.bias, -50.0)
    objective.output.bias.data[5] = 50.0
    seen: list[torch.Tensor] = []
    objective.embedding.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    for seed in range(20):
        torch.manual_seed(seed)
        objective.loss(*batch_of([[3, 1, 2, 1], [2, 2, 2, 2]], [7, 7]))
    tokens = torch.stack(seen).reshape(20, 5, 2)
    assert (tokens[:, 0] == END).all()
    drawn = (tokens[:, 1:] == 5).float().mean()
    assert 0.8 < float(drawn) < 1.0
    seen.clear()
    objective.eval().loss(*batch_of([[3, 1, 2, 1]], [7]))
    assert torch.stack(seen).flatten().tolist() == [END, 3, 1, 2, 1]


def test_a_token_is_drawn_from_what_follows_the_one_before() -> None:
    objective = objective_of(sampling=0.5)
    inputs: list[torch.Tensor] = []
    objective.output.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    objective.loss(*batch_of(TEXTS, LENS))
    *drawn_from, outputs_NUO = inputs  # the last ones are for the loss
    assert len(drawn_from) == 3
    assert all(torch.equal(output_NO, outputs_NUO[:, u]) for u, output_NO in enumerate(drawn_from))


def test_tokens_are_drawn_by_weights_that_autocast_keeps_with_their_gradients() -> None:
    """In half precision older torch gives no gradient to weights that were first used under no_grad."""
    objective = objective_of(sampling=0.9)
    have_gradients = []
    objective.output.register_forward_pre_hook(lambda *_: have_gradients.append(torch.is_grad_enabled()))
    objective.loss(*batch_of(TEXTS, LENS)).total.backward()
    assert have_gradients == [True] * 4  # of each token but the first one, and of all


def test_evaluation_draws_no_random_numbers() -> None:
    objective, batch = objective_of(sampling=0.5, dropout=0.3, weight_drop=0.2).eval(), batch_of(TEXTS, LENS)
    before = torch.get_rng_state()
    objective.loss(*batch)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("key", ["dropout", "weight_drop"])
def test_what_is_dropped_is_dropped_in_training_alone(key: str) -> None:
    objective = objective_of(**{key: 0.5})
    batch = batch_of(TEXTS, LENS)

    def losses() -> set[float]:
        return {float(objective.loss(*batch).total.detach()) for _ in range(4)}

    assert len(losses()) == 4
    assert len(objective.eval() and losses()) == 1
    plain = objective_of(label_smoothing=0.0)
    assert losses() == {float(plain.eval().loss(*batch).total.detach())}


def test_values_of_tokens_and_behind_both_layers_are_dropped() -> None:
    """The context as well, for the output alone."""
    objective = objective_of()
    sizes: list[int] = []
    objective.dropout.register_forward_hook(lambda _, __, output: sizes.append(output.shape[1]))
    objective.loss(*batch_of([[3, 1]], [4]))
    assert sizes == [6, 6, 6 + 4] * 3


def test_dropped_recurrent_weights_are_the_same_in_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = objective_of(weight_drop=0.5)
    used: list[torch.Tensor] = []
    lstm_cell = torch.lstm_cell
    monkeypatch.setattr(torch, "lstm_cell", lambda *args: used.append(args[3]) or lstm_cell(*args))
    objective.loss(*batch_of(TEXTS, LENS))
    assert len(used) > 4
    for weights in (used[::2], used[1::2]):  # of the lower and the upper layer
        assert all(weight is weights[0] for weight in weights)
        assert 0.2 < float((weights[0] == 0).float().mean()) < 0.8


@pytest.mark.parametrize(
    ("ctc_weight", "num_rows", "why"),
    [
        (0.0, 3, "3 rows, 4 needed"),
        (0.0, 4, ""),
        (0.3, 4, "4 rows, 5 needed"),
        (0.3, 5, ""),
        (0.0, 0, "0 rows, 4 needed"),
    ],
)
def test_a_token_takes_a_row_and_ctc_one_more_between_two_alike(ctc_weight: float, num_rows: int, why: str) -> None:
    assert objective_of(ctc_weight=ctc_weight).fits(num_rows, [1, 1, 2, 3]) == why
