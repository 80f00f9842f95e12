"""Acoustic models: features to log-probabilities of tokens, the criterion, and the model file."""

from asrtool.models.acoustic import AcousticModel
from asrtool.models.build import build_model
from asrtool.models.model_file import load_model, save_model

__all__ = ["AcousticModel", "build_model", "load_model", "save_model"]
