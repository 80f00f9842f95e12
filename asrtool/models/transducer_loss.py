"""The transducer loss (Graves 2012, arXiv 1211.3711): all ways in which rows and tokens alternate, summed.

In the lattice of an utterance node (t, u) has read t rows and emitted u tokens. From it a blank leads to (t + 1, u),
token u + 1 to (t, u + 1), or, where a row emits at most one token, to (t + 1, u + 1) (Tripathi et al. 2019; Kang et al.
2022, arXiv 2211.00484). The last row, when all tokens are out, ends it, by a blank unless by such a token.

    alpha(t, u) = alpha(t - 1, u) blank(t - 1, u) + alpha(t, u - 1) token(t, u - 1)
    beta(t, u) = beta(t + 1, u) blank(t, u) + beta(t, u + 1) token(t, u)

and with one token a row those of tokens are a row before and behind. Along u the first kind are linear recurrences,
solved for a whole row at once by cumulative sums. What a node's arcs have of the probability of all paths is their
gradient (equation 20 there).

Letters in names: N utterances, T rows, U tokens of the longest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad


def transducer_loss(
    blank_NTU: Tensor, token_NTU: Tensor, lens_N: Tensor, target_lens_N: Tensor, one_a_row: bool
) -> Tensor:
    """-ln P(tokens | rows), in nats, summed over the utterances.

    `blank_NTU`, (N, T, U + 1), and `token_NTU`, (N, T, U), are natural logarithms of the probabilities of the blank and
    of the next token in each node; what is behind the rows or tokens of an utterance has no influence. Each has a row,
    and where `one_a_row` one for each token.
    """
    loss: Tensor = _Paths.apply(blank_NTU, token_NTU, lens_N, target_lens_N, one_a_row)
    return loss


class _Paths(torch.autograd.Function):
    """By the recurrences, in float64: sums of a few hundred logarithms cancel in them."""

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
        by_token = by_token.masked_fill(~is_row_NT[:, :, None], 0.0)  # behind the end beta has its 0
        (grad,) = grads
        return -grad * by_blank.to(blank_NTU.dtype), -grad * by_token.to(token_NTU.dtype), None, None, None


def _forward(blank: Tensor, token: Tensor, one_a_row: bool) -> Tensor:
    """ln alpha (N, T, U + 1)."""
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
    """ln beta (N, T + 1, U + 1); of an utterance of T_n rows row T_n is 0 where all tokens are out, else -inf."""
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
    """ln of the probability to emit the first u tokens in a row, (N, T, U + 1)."""
    return pad(token.cumsum(2), (1, 0))
