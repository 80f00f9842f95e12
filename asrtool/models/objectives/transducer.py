"""Recurrent neural network transducer (Graves 2012, arXiv 1211.3711).

Its predictor reads the last `context` tokens alone (Ghodsi et al. 2020), so a search needs no recurrent state and can
cache predictions. A row and a prediction, both of `joint_size` values, are added and pass a tanh and a linear layer
to the probabilities of blank, column 0, and of tokens.

Letters in names: N utterances, T rows, C channels of a row, U tokens of an utterance, V tokens, J joint values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from asrtool.models.acoustic import Loss, Objective
from asrtool.models.objectives.targets import Targets
from asrtool.settings.models import Transducer as TransducerSettings

BLANK = 0


def transducer_loss(
    blank_NTU: Tensor, token_NTU: Tensor, lens_N: Tensor, target_lens_N: Tensor, one_a_row: bool
) -> Tensor:
    """Return -ln P(tokens | rows), in nats, summed over the utterances.

    `blank_NTU`, (N, T, U + 1), and `token_NTU`, (N, T, U), are natural logarithms of the probabilities of the blank and
    of the next token in each node; padding of rows or tokens has no influence. Each has a row,
    and with `one_a_row` one for each token.
    """
    loss: Tensor = _Paths.apply(blank_NTU, token_NTU, lens_N, target_lens_N, one_a_row)
    return loss


class _Paths(torch.autograd.Function):
    """Forward and backward recurrences in float64.

    Sums of a few hundred logarithms cancel in them.
    """

    @staticmethod
    def forward(ctx: Any, blank_NTU: Tensor, token_NTU: Tensor, *lens_and_kind: Any) -> Tensor:
        lens_N, target_lens_N, one_a_row = lens_and_kind
        beta = _backward(blank_NTU.double(), token_NTU.double(), lens_N, target_lens_N, one_a_row)
        ctx.one_a_row = one_a_row
        ctx.save_for_backward(blank_NTU, token_NTU, lens_N, beta)
        return -beta[:, 0, 0].sum().to(blank_NTU.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        blank_NTU, token_NTU, lens_N, beta = ctx.saved_tensors
        blank, token = blank_NTU.double(), token_NTU.double()
        behind_alpha = _forward(blank, token, ctx.one_a_row) - beta[:, :1, :1]
        by_blank = (behind_alpha + blank + beta[:, 1:]).exp()
        behind_token = beta[:, 1:, 1:] if ctx.one_a_row else beta[:, :-1, 1:]
        by_token = (behind_alpha[:, :, :-1] + token + behind_token).exp()
        is_row_NT = torch.arange(blank.shape[1], device=blank.device) < lens_N[:, None]
        by_token = by_token.masked_fill(~is_row_NT[:, :, None], 0.0)  # beta is 0 after the end
        (grad,) = grads
        return -grad * by_blank.to(blank_NTU.dtype), -grad * by_token.to(token_NTU.dtype), None, None, None


def log_probs(logits_NTUV: Tensor, targets_NU: Tensor) -> tuple[Tensor, Tensor]:
    """Return ln p of blank (N, T, U + 1) and of the next token (N, T, U) by node.

    `logits_NTUV` is the output of the joint network, (N, T, U + 1, V).
    """
    blank_NTU, token_NTU = _LogProbs.apply(logits_NTUV, targets_NU)
    return blank_NTU, token_NTU


class _LogProbs(torch.autograd.Function):
    """Log softmax with two used values a node.

    Its gradient takes the memory of the logits once; autograd makes a tensor of their size for each use, and adds all.
    """

    @staticmethod
    def forward(ctx: Any, logits_NTUV: Tensor, targets_NU: Tensor) -> tuple[Tensor, Tensor]:
        # One utterance at a time: exponentials of all logits take as much memory as the logits
        norm_NTU = torch.stack([logits_TUV.logsumexp(2) for logits_TUV in logits_NTUV])
        ctx.save_for_backward(logits_NTUV, norm_NTU, targets_NU)
        token_NTU = logits_NTUV[:, :, :-1].gather(3, _places(logits_NTUV, targets_NU)).squeeze(3)
        return logits_NTUV[..., BLANK] - norm_NTU, token_NTU - norm_NTU[:, :, :-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logits_NTUV, norm_NTU, targets_NU = ctx.saved_tensors
        by_blank_NTU, by_token_NTU = grads
        grad_NTUV = (
            (logits_NTUV - norm_NTU[..., None]).exp_().mul_(-(by_blank_NTU + pad(by_token_NTU, (0, 1)))[..., None])
        )
        grad_NTUV[..., BLANK] += by_blank_NTU
        grad_NTUV[:, :, :-1].scatter_add_(3, _places(logits_NTUV, targets_NU), by_token_NTU[..., None])
        return grad_NTUV, None


def _places(logits_NTUV: Tensor, targets_NU: Tensor) -> Tensor:
    """Return the column of the next token in each node, (N, T, U, 1)."""
    return targets_NU[:, None, :, None].expand(-1, logits_NTUV.shape[1], -1, -1)


def _forward(blank: Tensor, token: Tensor, one_a_row: bool) -> Tensor:
    """Return ln alpha (N, T, U + 1)."""
    emitted = _cumulate(token)
    alpha = torch.empty_like(blank)
    before = torch.full_like(blank[:, 0], -torch.inf)
    before[:, 0] = 0.0
    for t in range(blank.shape[1]):
        if one_a_row:
            alpha[:, t] = before
            by_token = pad(before[:, :-1] + token[:, t], (1, 0), value=-torch.inf)
            before = torch.logaddexp(before + blank[:, t], by_token)
        else:
            alpha[:, t] = emitted[:, t] + (before - emitted[:, t]).logcumsumexp(1)
            before = alpha[:, t] + blank[:, t]
    return alpha


def _backward(blank: Tensor, token: Tensor, lens_N: Tensor, target_lens_N: Tensor, one_a_row: bool) -> Tensor:
    """Return ln beta (N, T + 1, U + 1).

    For an utterance of T_n rows, row T_n is 0 if all tokens are out, else -inf.
    """
    num_utterances, num_rows, num_nodes = blank.shape
    emitted = _cumulate(token)
    beta = torch.full((num_utterances, num_rows + 1, num_nodes), -torch.inf, dtype=blank.dtype, device=blank.device)
    beta[torch.arange(num_utterances, device=blank.device), lens_N, target_lens_N] = 0.0
    for t in reversed(range(num_rows)):
        by_blank = blank[:, t] + beta[:, t + 1]
        if one_a_row:
            row = torch.logaddexp(by_blank, pad(token[:, t] + beta[:, t + 1, 1:], (0, 1), value=-torch.inf))
        else:
            row = (emitted[:, t] + by_blank).flip(1).logcumsumexp(1).flip(1) - emitted[:, t]
        beta[:, t] = torch.where((t < lens_N)[:, None], row, beta[:, t])
    return beta


def _cumulate(token: Tensor) -> Tensor:
    """Return ln p of emitting the first u tokens in a row, (N, T, U + 1)."""
    return pad(token.cumsum(2), (1, 0))


class Predictor(nn.Module):
    """Module from the last `context` tokens to a prediction; blanks come first."""

    def __init__(self, num_tokens: int, context: int, joint_size: int) -> None:
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(num_tokens, joint_size)
        self.output = nn.Linear(context * joint_size, joint_size)

    def forward(self, tokens_NU: Tensor) -> Tensor:
        """Map (N, U) to (N, U + 1, J): predictions before the first and after each token."""
        padded_NU = nn.functional.pad(tokens_NU, (self.context, 0), value=BLANK)
        last_NUc = padded_NU.unfold(1, self.context, 1)
        predicted: Tensor = self.output(self.embedding(last_NUc).flatten(2))
        return predicted


class Transducer(Objective):
    """-ln P(tokens | features) over all alignments; scores feed the joint network."""

    def __init__(self, settings: TransducerSettings, num_channels: int, num_tokens: int) -> None:
        super().__init__()
        self.one_a_row = settings.one_a_row
        self.encoded = nn.Linear(num_channels, settings.joint_size)
        self.predictor = Predictor(num_tokens, settings.context, settings.joint_size)
        self.output = nn.Linear(settings.joint_size, num_tokens)

    def rows_needed(self, targets: Targets) -> np.ndarray:
        """Return one row a token if a row emits one at most; at least one."""
        return super().rows_needed(targets) if self.one_a_row else np.ones(len(targets), np.int64)

    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """Return the loss in nats a token."""
        rows_NTJ, predicted_NUJ = self.encoded(hidden_NTC), self.predictor(targets_NU)
        logits_NTUV = self.output((rows_NTJ[:, :, None] + predicted_NUJ[:, None]).tanh_()).float()
        blank_NTU, token_NTU = log_probs(logits_NTUV, targets_NU)
        total = transducer_loss(blank_NTU, token_NTU, lens_N, target_lens_N, self.one_a_row)
        return Loss(total, int(target_lens_N.sum()))

    def scores(self, hidden_NTC: Tensor) -> Tensor:
        """Return rows for the joint network (N, T, J)."""
        rows_NTJ: Tensor = self.encoded(hidden_NTC)
        return rows_NTJ.float()
