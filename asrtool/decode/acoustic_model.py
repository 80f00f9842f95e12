"""Acoustic model of a search, its tokenizer and its scores.

Searches import this without torch. Letters in names: T rows, V columns of the scores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from asrtool.data.storage.index import Utterance
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.files.onnx_file import SUFFIX, OnnxNetwork, only_transcribed
from asrtool.models.objectives.decision_tree import tree_of
from asrtool.models.objectives.topology import Topology, load_topology
from asrtool.settings.decode import Decode, check_searches
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_section

if TYPE_CHECKING:
    from asrtool.models.acoustic import AcousticModel as AcousticModule


@dataclass(frozen=True)
class AcousticModel:
    """Network with its file and the file's info."""

    path: Path
    network: AcousticModule | OnnxNetwork
    info: dict[str, Any]

    @property
    def model(self) -> AcousticModule:
        """The network as a module of torch; AsrtoolError if it is ONNX."""
        if isinstance(self.network, OnnxNetwork):
            raise only_transcribed(self.path)
        return self.network

    @property
    def frame_shift_ms(self) -> float:
        """Time from one feature frame to the next."""
        return float(self.info["features"]["frame_shift_ms"])

    @property
    def frame_s(self) -> float:
        """Time from one row of scores to the next."""
        return self.frame_shift_ms * self.network.subsampling / 1000

    @cached_property
    def objective(self) -> Choice:
        """Objective that the model was trained for."""
        chosen: Choice = load_section("model", self.info["model"], str(self.path)).objective
        return chosen

    @cached_property
    def topology(self) -> Topology:
        """Topology of its scores."""
        return load_topology(self.objective, tree_of(self.info))


def load_searched_model(path: Path, settings: Decode) -> AcousticModel:
    """Load `path`; AsrtoolError if it is broken or a method cannot search its scores."""
    acoustic = load_acoustic_model(path)
    try:
        check_searches(settings, acoustic.objective)
    except ValueError as error:
        raise AsrtoolError(f"{path}: {error}", "choose other methods") from error
    return acoustic


def load_acoustic_model(path: Path) -> AcousticModel:
    """Load `path`; AsrtoolError if it is missing or broken."""
    if not path.exists():
        raise AsrtoolError(f"{path}: no acoustic model", "run the stages train and average first")
    if path.suffix == SUFFIX:
        network = OnnxNetwork(path)
        return AcousticModel(path, network, network.info)
    from asrtool.models.acoustic import load_model

    return AcousticModel(path, *load_model(path))


def load_tokenizer(directory: Path, acoustic: AcousticModel) -> Tokenizer:
    """Load a tokenizer; AsrtoolError unless its tokens are the model's outputs."""
    tokenizer, num_tokens = Tokenizer.load(directory), acoustic.info["num_tokens"]
    hint = "use the tokenizer that it was trained with, or train it again with this one"
    if tokenizer.num_tokens != num_tokens:
        found = f"{tokenizer.num_tokens} tokens, but {acoustic.path} was trained on {num_tokens}"
        raise AsrtoolError(f"{directory}: {found}", hint)
    if tokenizer.digest != acoustic.info["tokenizer"]:
        raise AsrtoolError(f"{directory}: {acoustic.path} was trained on {num_tokens} other tokens", hint)
    return tokenizer


@dataclass(frozen=True)
class Scored:
    """Scores of an utterance, float32 (T, V), and the CPU seconds they took."""

    utterance: Utterance
    scores_TV: np.ndarray
    cpu_s: float
    position: int = 0  # position of the utterance in the index of its set


def check_scores(scores_TV: np.ndarray, name: str) -> None:
    """Raise AsrtoolError naming the utterance if scores are NaN."""
    if np.isnan(scores_TV).any():
        raise AsrtoolError(
            f"utterance {name}: the model gives scores that are NaN",
            "look at the losses of its training; average other checkpoints, or train again with a lower rate",
        )


class ScoreFile:
    """Scores of a set in an open file: recorded as they arrive, then read again."""

    def __init__(self, file: BinaryIO) -> None:
        self.is_whole = False  # True once all are recorded
        self._file = file

    def record(self, scored: Iterable[Scored]) -> Iterator[Scored]:
        """Write `scored` and pass them through; OSError if the disk is full."""
        for item in scored:
            pickle.dump(dataclasses.replace(item, cpu_s=0.0), self._file)
            yield item
        self.is_whole = True

    def __iter__(self) -> Iterator[Scored]:
        self._file.seek(0)
        with contextlib.suppress(EOFError):
            while True:
                yield pickle.load(self._file)
