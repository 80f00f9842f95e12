"""The recurrent neural network transducer (Graves 2012, arXiv 1211.3711), with a predictor of limited context.

The predictor sees the last `context` tokens alone (Ghodsi et al. 2020), so a search needs no recurrent state, and the
distributions of a context can be kept. A row and a prediction, both of `joint_size` values, are added and pass a tanh
and a linear layer to the probabilities of blank, column 0, and of tokens.

Letters in names: N utterances, T rows, C channels of a row, U tokens of an utterance, V tokens, J joint values.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from asrtool.models.acoustic import Loss, Objective
from asrtool.models.settings import Transducer as TransducerSettings
from asrtool.models.targets import Targets
from asrtool.models.transducer_loss import transducer_loss

BLANK = 0


class Predictor(nn.Module):
    """The last `context` tokens to a prediction; before the first token there are blanks."""

    def __init__(self, num_tokens: int, context: int, joint_size: int) -> None:
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(num_tokens, joint_size)
        self.output = nn.Linear(context * joint_size, joint_size)

    def forward(self, tokens_NU: Tensor) -> Tensor:
        """(N, U) to (N, U + 1, J): what is predicted before the first token, and behind each."""
        padded_NU = nn.functional.pad(tokens_NU, (self.context, 0), value=BLANK)
        last_NUc = padded_NU.unfold(1, self.context, 1)
        predicted: Tensor = self.output(self.embedding(last_NUc).flatten(2))
        return predicted


class Transducer(Objective):
    """-ln P(tokens | features), summed over all alignments; what a search reads are the rows for the joint network."""

    def __init__(self, settings: TransducerSettings, num_channels: int, num_tokens: int) -> None:
        super().__init__()
        self.one_a_row = settings.one_a_row
        self.encoded = nn.Linear(num_channels, settings.joint_size)
        self.predictor = Predictor(num_tokens, settings.context, settings.joint_size)
        self.output = nn.Linear(settings.joint_size, num_tokens)

    def rows_needed(self, targets: Targets) -> np.ndarray:
        """Each token takes a row where a row emits one at most, and there is one."""
        return super().rows_needed(targets) if self.one_a_row else np.ones(len(targets), np.int64)

    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """In nats a token."""
        rows_NTJ, predicted_NUJ = self.encoded(hidden_NTC), self.predictor(targets_NU)
        logits_NTUV = self.output((rows_NTJ[:, :, None] + predicted_NUJ[:, None]).tanh()).float()
        norm_NTU = logits_NTUV.logsumexp(3)
        blank_NTU = logits_NTUV[..., BLANK] - norm_NTU
        next_NTU1 = targets_NU[:, None, :, None].expand(-1, logits_NTUV.shape[1], -1, -1)
        token_NTU = logits_NTUV[:, :, :-1].gather(3, next_NTU1).squeeze(3) - norm_NTU[:, :, :-1]
        total = transducer_loss(blank_NTU, token_NTU, lens_N, target_lens_N, self.one_a_row)
        return Loss(total, int(target_lens_N.sum()))

    def scores(self, hidden_NTC: Tensor) -> Tensor:
        """Rows for the joint network (N, T, J)."""
        rows_NTJ: Tensor = self.encoded(hidden_NTC)
        return rows_NTJ.float()
