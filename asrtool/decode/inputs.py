"""The acoustic model and the features it is applied to, and whether they fit each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from asrtool.config_file import load_section
from asrtool.corpus.reader import FeatureReader
from asrtool.decode.settings import Decode, check_searches
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel as AcousticModule
from asrtool.models.acoustic import load_model
from asrtool.models.topology import Topology, load_topology
from asrtool.settings import Choice

CACHE_BYTES = 2**30  # features of a set held in memory when they all fit


@dataclass(frozen=True)
class AcousticModel:
    """The model, and the file it came from with what that says of it."""

    path: Path
    model: AcousticModule
    info: dict[str, Any]

    @property
    def frame_shift_ms(self) -> float:
        """From one feature frame to the next."""
        return float(self.info["features"]["frame_shift_ms"])

    @property
    def frame_s(self) -> float:
        """From one row of scores to the next."""
        return self.frame_shift_ms * int(self.model.encoder.subsampling) / 1000

    @cached_property
    def objective(self) -> Choice:
        """What it was trained for."""
        chosen: Choice = load_section("model", self.info["model"], str(self.path)).objective
        return chosen

    @cached_property
    def topology(self) -> Topology:
        """How rows of its scores stand for tokens."""
        return load_topology(self.objective)


def load_searched_model(path: Path, settings: Decode) -> AcousticModel:
    """Load `path`; AsrtoolError when it is missing or broken, and where a method cannot search its scores."""
    acoustic = load_acoustic_model(path)
    try:
        check_searches(settings, acoustic.objective)
    except ValueError as error:
        raise AsrtoolError(f"{path}: {error}", "choose other methods") from error
    return acoustic


def load_acoustic_model(path: Path) -> AcousticModel:
    """Load `path`; AsrtoolError when it is missing or broken."""
    if not path.exists():
        raise AsrtoolError(f"{path}: no acoustic model", "run the stages train and average first")
    return AcousticModel(path, *load_model(path))


def open_features(directory: Path, acoustic: AcousticModel) -> FeatureReader:
    """A reader of one set, normalised as the model was trained; AsrtoolError when the model expects other features."""
    reader = FeatureReader(directory, acoustic.info["features"]["cmvn"], CACHE_BYTES)
    if reader.num_bins != acoustic.info["num_features"]:
        raise AsrtoolError(
            f"{directory}: {reader.num_bins} features a frame, but {acoustic.path} was trained on"
            f" {acoustic.info['num_features']}",
            "run the stages train and average again with these features",
        )
    return reader


def check_num_tokens(tokenizer: Path, num_tokens: int, acoustic: AcousticModel) -> None:
    """AsrtoolError unless the model has an output for each of the `num_tokens` of the folder `tokenizer`."""
    if num_tokens != acoustic.info["num_tokens"]:
        raise AsrtoolError(
            f"{tokenizer}: {num_tokens} tokens, but {acoustic.path} was trained on {acoustic.info['num_tokens']}",
            "run the stages train and average again with this tokenizer",
        )
