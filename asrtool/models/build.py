"""From settings to an acoustic model."""

from __future__ import annotations

from asrtool.config import Model
from asrtool.models.acoustic import AcousticModel
from asrtool.models.lstm import BiLstm

MODELS = {"lstm": BiLstm}


def build_model(model: Model, num_features: int, num_tokens: int) -> AcousticModel:
    """A model of `model.kind` with random weights drawn from torch's generator.

    `num_features` is F, values a frame; `num_tokens` is V, the blank among them.
    """
    return MODELS[model.kind](model, num_features, num_tokens)
