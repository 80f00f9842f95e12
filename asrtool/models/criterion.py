"""What training minimises: connectionist temporal classification (Graves et al., 2006).

Letters in names: N utterances, T frames, V tokens, U labels of an utterance.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

BLANK = 0


def ctc_loss(log_probs_NTV: Tensor, lens_N: Tensor, tokens_NU: Tensor, token_lens_N: Tensor) -> Tensor:
    """Sum over the utterances of -ln P(tokens | features), in nats.

    An utterance with fewer frames than `ctc_frames_needed` has no path and makes the sum infinite: leave it out
    before training, because its gradient would be nothing or not a number.
    """
    return torch.nn.functional.ctc_loss(
        log_probs_NTV.transpose(0, 1), tokens_NU, lens_N, token_lens_N, blank=BLANK, reduction="sum"
    )


def ctc_frames_needed(tokens: Sequence[int]) -> int:
    """Rows of log-probabilities the shortest path takes: one a token, and a blank between equal neighbours."""
    return len(tokens) + sum(one == two for one, two in pairwise(tokens))
