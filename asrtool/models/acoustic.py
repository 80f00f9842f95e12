"""An acoustic model: an encoder and an objective.

Letters in names: N utterances, T frames or rows, F features of a frame, U targets of an utterance, V tokens.
"""

from __future__ import annotations

from torch import Tensor, nn

from asrtool.models.encoder import Encoder
from asrtool.models.objective import Loss, Objective
from asrtool.models.settings import Model


class AcousticModel(nn.Module):
    """What is trained, averaged and saved."""

    def __init__(self, encoder: Encoder, objective: Objective) -> None:
        super().__init__()
        self.encoder = encoder
        self.objective = objective

    def loss(self, feats_NTF: Tensor, feat_lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """The loss of a batch."""
        hidden_NTC, lens_N = self.encoder(feats_NTF, feat_lens_N)
        return self.objective.loss(hidden_NTC, lens_N, targets_NU, target_lens_N)

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """The scores of the objective (N, T', V), float32, and the rows of each utterance (N,)."""
        hidden_NTC, lens_N = self.encoder(feats_NTF, feat_lens_N)
        return self.objective.scores(hidden_NTC), lens_N


def build_model(model: Model, num_features: int, num_tokens: int) -> AcousticModel:
    """The model of these settings with random weights drawn from torch's generator.

    `num_features` is F, values a frame; `num_tokens` is V, all of the tokenizer. Raises AsrtoolError for a component
    that cannot be loaded.
    """
    encoder: Encoder = model.encoder.load()(model.encoder.settings, num_features)
    objective: Objective = model.objective.load()(model.objective.settings, encoder.output_size, num_tokens)
    return AcousticModel(encoder, objective)
