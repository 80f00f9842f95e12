"""Encoder-decoder with attention (Chan et al. 2016, arXiv 1508.01211).

The decoder follows Tueske et al. 2020: its lower LSTM layer reads previous tokens alone, like a language model; the
upper one reads that and the last context, a mean of rows. Attention is additive and location-aware (Chorowski et al.
2015, arXiv 1506.07503): a convolution of the sum of its weights so far is part of each energy

    e_t = v . tanh(Q q + K h_t + (F * sum of weights)_t)

for the output q of the upper layer. END, column 0, comes before the first token and after the last one. With
`ctc_weight` w the loss is (1 - w) times the decoder's plus w times CTC on the same rows (Watanabe et al. 2017).

Letters in names: N utterances, T rows, C channels of a row, U tokens of an utterance, V tokens, H cells, A values of
an energy, K rows of a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from asrtool.models.acoustic import Loss, Objective
from asrtool.models.objectives.ctc import Ctc
from asrtool.models.objectives.targets import Targets
from asrtool.settings.models import Attention as AttentionSettings
from asrtool.settings.models import Ctc as CtcSettings

END = 0


class Energies(nn.Module):
    """Attention weights from the query, the rows, and the weights so far."""

    def __init__(self, num_channels: int, query_size: int, size: int, kernel_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(num_channels, size)
        self.query = nn.Linear(query_size, size, bias=False)
        self.location = nn.Conv1d(1, size, kernel_size, padding=kernel_size // 2, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)

    def forward(self, query_NH: Tensor, keys_NTA: Tensor, is_row_NT: Tensor, sum_NT: Tensor) -> Tensor:
        """Return weights (N, T) that sum to 1 over the rows without padding."""
        kernel_AK = self.location.weight[:, 0]
        width = kernel_AK.shape[1]
        windows_NTK = nn.functional.pad(sum_NT, (width // 2, width // 2)).unfold(1, width, 1)
        # A product of matrices: with one channel Conv1d takes several times as long
        values_NTA = torch.baddbmm(keys_NTA, windows_NTK, kernel_AK.t().expand(len(sum_NT), -1, -1))
        energies_NT = self.energy((self.query(query_NH)[:, None] + values_NTA).tanh()).squeeze(2)
        weights_NT: Tensor = energies_NT.float().masked_fill(~is_row_NT, -torch.inf).softmax(dim=1)
        return weights_NT


class State(NamedTuple):
    """State of the decoder between two steps."""

    lower: tuple[Tensor, Tensor]  # output and cells (N, H)
    upper: tuple[Tensor, Tensor]
    context_NC: Tensor
    sum_NT: Tensor  # sum of the attention weights so far


class Attention(Objective):
    """-ln P(tokens | features), token by token; its scores are the rows themselves."""

    def __init__(self, settings: AttentionSettings, num_channels: int, num_tokens: int) -> None:
        super().__init__()
        self.settings = settings
        size = settings.hidden_size
        self.embedding = nn.Embedding(num_tokens, size)
        self.lower = nn.LSTMCell(size, size)
        self.upper = nn.LSTMCell(size + num_channels, size)
        self.energies = Energies(num_channels, size, settings.attention_size, settings.kernel_size)
        self.output = nn.Linear(size + num_channels, num_tokens)
        self.dropout = nn.Dropout(settings.dropout)
        self.ctc = Ctc(CtcSettings(), num_channels, num_tokens) if settings.ctc_weight else None

    def rows_needed(self, targets: Targets) -> np.ndarray:
        """Return one row a token, which the search needs; CTC may need more."""
        return self.ctc.rows_needed(targets) if self.ctc else super().rows_needed(targets)

    def counts(self, num_rows_N: np.ndarray, num_targets_N: np.ndarray) -> np.ndarray:
        """Return the numbers of tokens with the end."""
        return num_targets_N + 1

    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """Return the loss in nats a token or end.

        `errors` counts tokens less probable than another one. In training `label_smoothing` of the target is
        spread over all tokens.
        """
        ends_N1 = targets_NU.new_full((len(targets_NU), 1), END)
        wanted_NU = torch.cat([targets_NU, ends_N1], dim=1)  # padded with END as well
        logits_NUV = self._decode(hidden_NTC, lens_N, torch.cat([ends_N1, targets_NU], dim=1))
        counts_NU = torch.arange(wanted_NU.shape[1], device=lens_N.device) <= target_lens_N[:, None]
        logits_RV, wanted_R = logits_NUV[counts_NU].float(), wanted_NU[counts_NU]
        smoothing = self.settings.label_smoothing if self.training else 0.0
        total = nn.functional.cross_entropy(logits_RV, wanted_R, reduction="sum", label_smoothing=smoothing)
        figures = {"errors": float((logits_RV.argmax(dim=1) != wanted_R).sum())}
        if self.ctc:
            weight, ctc = self.settings.ctc_weight, self.ctc.loss(hidden_NTC, lens_N, targets_NU, target_lens_N).total
            total = (1 - weight) * total + weight * ctc
            figures["ctc"] = float(ctc.detach())
        return Loss(total, len(wanted_R), figures)

    def _decode(self, hidden_NTC: Tensor, lens_N: Tensor, before_NU: Tensor) -> Tensor:
        """Return logits (N, U, V) after each of the tokens `before_NU`."""
        is_row_NT = torch.arange(hidden_NTC.shape[1], device=lens_N.device) < lens_N[:, None]
        hidden_NTC = hidden_NTC.masked_fill(~is_row_NT[:, :, None], 0.0)  # NaN in padding times 0 would be NaN
        keys_NTA = self.energies.key(hidden_NTC)
        drawn_NU = torch.zeros(before_NU.shape, dtype=torch.bool, device=before_NU.device)
        if self.training:  # elsewhere it would take random numbers of a step that another thread computes
            drawn_NU = torch.rand(before_NU.shape, device=before_NU.device) < self.settings.sampling
        weights = [  # recurrent ones with entries zeroed for the batch (Wan et al. 2013)
            nn.functional.dropout(cell.weight_hh, self.settings.weight_drop, self.training)
            for cell in (self.lower, self.upper)
        ]
        state = self._start(hidden_NTC)
        outputs: list[Tensor] = []
        for u in range(before_NU.shape[1]):
            token_N = before_NU[:, u]
            if self.training and self.settings.sampling and u:
                token_N = torch.where(drawn_NU[:, u], self._draw(outputs[-1]), token_N)
            output_NO, state = self._step(token_N, state, hidden_NTC, keys_NTA, is_row_NT, weights)
            outputs.append(output_NO)
        logits_NUV: Tensor = self.output(torch.stack(outputs, dim=1))
        return logits_NUV

    def _start(self, hidden_NTC: Tensor) -> State:
        num_utterances, num_rows, num_channels = hidden_NTC.shape
        zeros = (torch.zeros(num_utterances, self.settings.hidden_size, device=hidden_NTC.device),) * 2
        context_NC = torch.zeros(num_utterances, num_channels, device=hidden_NTC.device)
        return State(zeros, zeros, context_NC, torch.zeros(num_utterances, num_rows, device=hidden_NTC.device))

    def _step(
        self,
        token_N: Tensor,
        state: State,
        hidden_NTC: Tensor,
        keys_NTA: Tensor,
        is_row_NT: Tensor,
        weights: Sequence[Tensor],
    ) -> tuple[Tensor, State]:
        """Return the input of the output layer after a token (N, H + C), and the state.

        `weights` are the recurrent weights.
        """
        lower = run_cell(self.lower, weights[0], self.dropout(self.embedding(token_N)), state.lower)
        seen_NI = torch.cat([self.dropout(lower[0]), state.context_NC], dim=1)
        upper = run_cell(self.upper, weights[1], seen_NI, state.upper)
        weights_NT = self.energies(upper[0], keys_NTA, is_row_NT, state.sum_NT)
        context_NC = (weights_NT[:, None] @ hidden_NTC.float()).squeeze(1)
        output_NO = self.dropout(torch.cat([upper[0], context_NC], dim=1))
        return output_NO, State(lower, upper, context_NC, state.sum_NT + weights_NT)

    def _draw(self, output_NO: Tensor) -> Tensor:
        """Draw tokens (N,) from the model for scheduled sampling (Bengio et al. 2015)."""
        # Not under no_grad: autocast of older torch keeps weights that it rounded there, and they get no gradient
        logits_NV = self.output(output_NO.detach()).detach()
        return torch.multinomial(logits_NV.float().softmax(dim=1), 1).squeeze(1)


def run_cell(
    cell: nn.LSTMCell, weight_hh: Tensor, inputs: Tensor, state: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Return output and cells (N, H) of `cell` with another recurrent weight."""
    output_NH, cells_NH = torch.lstm_cell(inputs, state, cell.weight_ih, weight_hh, cell.bias_ih, cell.bias_hh)
    return output_NH, cells_NH
