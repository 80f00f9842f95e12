"""What training minimises: connectionist temporal classification (Graves et al., 2006).

Letters in names: N utterances, T frames, V tokens, U labels of an utterance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from asrtool.optional import require_k2

BLANK = 0
NO_BEAM = 1e9  # keeps every path of the lattice; pruning with k2's default of 10 takes a part of the probability away

Criterion = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def choose_criterion(name: str) -> Criterion:
    """The loss called `name` in the settings: ctc or k2-ctc, the same function computed by torch or by k2.

    Raises AsrtoolError where k2 is asked for and missing.
    """
    if name == "k2-ctc":
        require_k2("train.criterion = k2-ctc")
        return k2_ctc_loss
    return ctc_loss


def ctc_loss(log_probs_NTV: Tensor, lens_N: Tensor, tokens_NU: Tensor, token_lens_N: Tensor) -> Tensor:
    """Sum over the utterances of -ln P(tokens | features), in nats.

    An utterance with fewer frames than `ctc_frames_needed` has no path and makes the sum infinite: leave it out
    before training, because its gradient would be nothing or not a number.
    """
    return torch.nn.functional.ctc_loss(
        log_probs_NTV.transpose(0, 1), tokens_NU, lens_N, token_lens_N, blank=BLANK, reduction="sum"
    )


def k2_ctc_loss(log_probs_NTV: Tensor, lens_N: Tensor, tokens_NU: Tensor, token_lens_N: Tensor) -> Tensor:
    """`ctc_loss` as the total weight of the CTC graphs of the texts intersected with the log-probabilities."""
    import k2

    order_N = lens_N.cpu().argsort(descending=True)  # k2 wants the longest first
    texts = [tokens_NU[n, : token_lens_N[n]].tolist() for n in order_N.tolist()]
    segments_N3 = torch.stack([order_N, torch.zeros_like(order_N), lens_N.cpu()[order_N]], dim=1).to(torch.int32)
    return k2.ctc_loss(
        k2.ctc_graph(texts, device=log_probs_NTV.device),
        k2.DenseFsaVec(log_probs_NTV, segments_N3),
        output_beam=NO_BEAM,
        reduction="sum",
    )


def ctc_frames_needed(tokens: Sequence[int]) -> int:
    """Rows of log-probabilities the shortest path takes: one a token, and a blank between equal neighbours."""
    return len(tokens) + sum(one == two for one, two in pairwise(tokens))
