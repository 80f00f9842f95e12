"""The model file: weights with what is needed to use them.

Content: ``format``; ``info`` = {``model``: the section of the settings, with the tables of encoder and objective;
``features``: the section they were trained with; ``num_features``, ``num_tokens``}; ``weights``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from asrtool.config_file import load_section
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel, build_model
from asrtool.models.torch_file import read_torch, write_torch

FORMAT = 2


def save_model(path: Path, model: AcousticModel, info: dict[str, Any]) -> None:
    """Write `model` and `info`, atomically; AsrtoolError when the disk is full."""
    write_torch(path, {"format": FORMAT, "info": info, "weights": model.state_dict()})


def load_model(path: Path | str) -> tuple[AcousticModel, dict[str, Any]]:
    """The model, ready to be applied (no dropout), and its info.

    Raises AsrtoolError when the file is missing, damaged, or of a format this version does not know.
    """
    content = read_torch(path, "model file", ("format", "info", "weights"))
    if content["format"] != FORMAT:
        raise AsrtoolError(
            f"{path}: model file of format {content['format']}, expected {FORMAT}", "train and average again"
        )
    try:
        model = model_of(content["info"], str(path))
        model.load_state_dict(content["weights"])
    except (KeyError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise AsrtoolError(f"{path}: weights that do not fit their settings: {reason}", "average again") from error
    return model.eval(), content["info"]


def model_of(info: dict[str, Any], origin: str) -> AcousticModel:
    """A model of the `info` of a model file, with random weights; `origin` names the file in an AsrtoolError."""
    return build_model(load_section("model", info["model"], origin), info["num_features"], info["num_tokens"])
