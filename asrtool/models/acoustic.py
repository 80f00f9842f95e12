"""Acoustic model: an encoder, an objective, and the model file.

A model file holds ``format``; ``info`` = {``model``: the section of the settings, with the tables of encoder and
objective; ``features``: the section of its features; ``num_features``, ``num_tokens``; ``tokenizer``: the digest of
its file; ``tree``: arrays of a decision tree, if the objective uses one}; ``weights``.

Letters in names: N utterances, T frames or rows, F features of a frame, C channels of a row, U targets of an
utterance, V tokens.
"""

from __future__ import annotations

import dataclasses
import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from asrtool.errors import AsrtoolError
from asrtool.models.encoders.deltas import add_deltas
from asrtool.models.encoders.stages import Part
from asrtool.models.files.torch_file import IS_TORCH_1, read_torch, write_torch
from asrtool.models.objectives.decision_tree import Tree, tree_of
from asrtool.models.objectives.targets import Targets
from asrtool.models.objectives.topology import uses_tree
from asrtool.settings.models import Model
from asrtool.settings.registry import check_returned
from asrtool.settings.toml_files import load_section

FORMAT = 2


class Encoder(nn.Module, ABC):
    """Module from features to hidden rows, one for every `subsampling` frames.

    The last frames of an utterance are filled up to a row. An encoder is built with its settings and the number of
    features of a frame. Padding has no influence on the rows of an utterance.
    """

    subsampling: int  # feature frames a row
    output_size: int  # C, channels of a row
    streams: bool = False  # `stream` gives the rows of `forward` while an utterance is spoken

    @abstractmethod
    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return hidden rows (N, ceil(T / subsampling), C) and their numbers (N,)."""

    def parts(self) -> Sequence[Part]:
        """Return `forward` cut into parts that devices may share; here one part."""
        return [Part(self.forward, self)]

    def stream(self, feats_NTF: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the rows of the next frames, and the state after them.

        `state` is None at the start of an utterance. All but the last frames come as multiples of `subsampling`. Only
        for encoders that `streams`.
        """
        raise NotImplementedError

    def output_lens(self, feat_lens_N: Tensor) -> Tensor:
        """Return the rows of `forward` for these numbers of frames."""
        return torch.div(feat_lens_N + self.subsampling - 1, self.subsampling, rounding_mode="floor")


@dataclass(frozen=True)
class Loss:
    """Loss of a batch as sums, which are divided once a step or evaluation."""

    total: Tensor  # nats, summed over the utterances; a scalar
    normaliser: int  # divisor of the total: number of targets, or of rows
    figures: Mapping[str, float] = field(default_factory=dict)  # further sums to report, divided by the same


class Objective(nn.Module, ABC):
    """Module from hidden rows to a loss and to the scores of a search.

    It is built with its settings, the channels of a row and the number of tokens. Its settings name the searches that
    use its scores (`searches`) and the stages whose outputs it needs (`needs`).
    """

    targets: ClassVar[str] = "tokens"  # or leaves of a decision tree, one for each row; or what a custom source has
    views: int = 1  # or 2: copies of each utterance, masked differently, that a step of training compares
    spellings: Sequence[str] = ()  # text of each token, with a blank before a word; none if tokens do not spell words

    @abstractmethod
    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """Return the loss of a batch, in float32 for any precision of the rows."""

    def loss_of_views(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """Return the loss for `views` of 2: (2 N, T, C), second views after the first."""
        raise NotImplementedError  # implemented by objectives with two views

    def rows_needed(self, targets: Targets) -> np.ndarray:
        """Return the minimum number of rows for each of these `targets`, int64.

        It works on arrays since it is called for a whole set. Here one row each.
        """
        return np.maximum(targets.lens, 1)

    def counts(self, num_rows_N: np.ndarray, num_targets_N: np.ndarray) -> np.ndarray:
        """Return the part of each utterance in the normaliser of `loss`, int64."""
        return num_targets_N

    def fits(self, num_rows: int, targets: Sequence[int]) -> str:
        """Return the reason for which `num_rows` rows cannot be trained on, or ''.

        An objective without a minimum by `rows_needed` has this instead. It is called for each utterance, which takes
        minutes for millions.
        """
        needed = int(self.rows_needed(Targets.of([targets]))[0])
        return "" if needed <= num_rows else f"{num_rows} rows, {needed} needed"

    def normaliser(self, num_rows: int, targets: Sequence[int]) -> int:
        """Return the part of one utterance in the normaliser, in place of `counts`."""
        return int(self.counts(np.array([num_rows]), np.array([len(targets)]))[0])

    def prepare(self, sequences: Iterable[np.ndarray]) -> None:
        """Prepare training on pdfs with the tokens (U,) of each training utterance.

        Silence is one of the tokens.
        """
        return

    def scores(self, hidden_NTC: Tensor) -> Tensor:
        """Return the input of a search, a row for each hidden row, float32."""
        return hidden_NTC.float()


class AcousticModel(nn.Module):
    """Model that is trained, averaged and saved."""

    def __init__(self, encoder: Encoder, objective: Objective, deltas: int = 0) -> None:
        """Take `deltas`, the orders of deltas beside the features."""
        super().__init__()
        self.deltas = deltas
        self.encoder = encoder
        self.objective = objective
        self.is_checked = False  # True once both parts were checked on a batch

    @property
    def subsampling(self) -> int:
        """Feature frames a row of scores."""
        return int(self.encoder.subsampling)

    def loss(
        self,
        feats_NTF: Tensor,
        feat_lens_N: Tensor,
        targets_NU: Tensor,
        target_lens_N: Tensor,
        others_NTF: Tensor | None = None,
    ) -> Loss:
        """Return the loss of a batch; `others_NTF` are second views of it.

        Raises AsrtoolError if a part returns something else than its protocol in the first batch.
        """
        if others_NTF is not None:
            feats_NTF, num_frames_N = torch.cat([feats_NTF, others_NTF]), feat_lens_N.repeat(2)
            hidden_NTC, lens_N = self.encoder(self.inputs(feats_NTF, num_frames_N), num_frames_N)
            return self.objective.loss_of_views(hidden_NTC, lens_N.chunk(2)[0], targets_NU, target_lens_N)
        rows = self.encoder(self.inputs(feats_NTF, feat_lens_N), feat_lens_N)
        return self.loss_of(rows, feat_lens_N, targets_NU, target_lens_N)

    def loss_of(self, rows: Any, feat_lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """Return the loss for the output of the encoder."""
        is_first, self.is_checked = not self.is_checked, True
        if is_first:
            check_rows(self.encoder, feat_lens_N, rows)
        hidden_NTC, lens_N = rows
        loss = self.objective.loss(hidden_NTC, lens_N, targets_NU, target_lens_N)
        if is_first:
            check_loss(self.objective, loss)
        return loss

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores (N, T', V), float32, and the rows of each utterance (N,)."""
        hidden_NTC, lens_N = self.encoder(self.inputs(feats_NTF, feat_lens_N), feat_lens_N)
        return self.objective.scores(hidden_NTC), lens_N

    def stream(self, feats_NTF: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the scores of the next frames, as Encoder.stream, after `check_streams`."""
        hidden_NTC, state = self.encoder.stream(feats_NTF, state)
        return self.objective.scores(hidden_NTC), state

    def check_streams(self) -> None:
        """Raise AsrtoolError if a row of scores depends on later frames."""
        if self.deltas:
            what = f"a model with model.deltas = {self.deltas} needs later frames"
            raise AsrtoolError(what, "train one without deltas to use it while somebody speaks")
        if not self.encoder.streams:
            what = f"{_path_of(self.encoder)} with these settings needs whole utterances"
            hint = "train another model: model.lstm with bidirectional = false and conv_channels = 0"
            raise AsrtoolError(what, hint)

    def inputs(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> Tensor:
        """Return the input of the encoder, with deltas of the masked features."""
        return add_deltas(feats_NTF, feat_lens_N, self.deltas) if self.deltas else feats_NTF


def build_model(model: Model, num_features: int, num_tokens: int, tree: Tree | None = None) -> AcousticModel:
    """Build a model with random weights from torch's generator.

    `num_features` is F, values a frame; `num_tokens` is V, all of the
    tokenizer; an objective that uses a `tree` is built with that. Raises AsrtoolError for a component that cannot be
    loaded, and for an encoder without output size or subsampling.
    """
    encoder: Encoder = model.encoder.load()(model.encoder.settings, num_features * (1 + model.deltas))
    check_encoder(encoder, model.encoder.name)
    sizes = (encoder.output_size, num_tokens, tree) if uses_tree(model.objective) else (encoder.output_size, num_tokens)
    objective: Objective = model.objective.load()(model.objective.settings, *sizes)
    return AcousticModel(encoder, objective, model.deltas)


def check_encoder(encoder: Encoder, name: str) -> None:
    """Raise AsrtoolError if an encoder lacks the attributes that describe its rows."""
    for part in ("subsampling", "output_size"):
        if not isinstance(getattr(encoder, part, None), int):
            hint = "set it to a whole number in __init__, see docs/how-to/new-encoder.md"
            raise AsrtoolError(f"{name}: no encoder, it lacks {part}", hint)


def check_rows(encoder: Encoder, feat_lens_N: Tensor, rows: Any) -> None:
    """Raise AsrtoolError if the number of `rows` differs from the encoder's formula."""
    name, by = _path_of(encoder), encoder.subsampling
    check_returned(name, rows, tuple)
    hidden_NTC, lens_N = rows
    frames, found = feat_lens_N.tolist(), lens_N.tolist()
    if found != (expected := [math.ceil(num / by) for num in frames]):
        made = f"{name} made {reprlib.repr(found)} rows of {reprlib.repr(frames)} frames"
        hint = "correct subsampling, or make a row of as many frames, the last one filled up"
        raise AsrtoolError(f"{made}, expected {reprlib.repr(expected)} by its subsampling of {by}", hint)
    shape, wanted = tuple(hidden_NTC.shape), (len(frames), max(expected), encoder.output_size)
    if len(shape) != 3 or shape[::2] != wanted[::2] or shape[1] < wanted[1]:
        what = f"{name} made rows of shape {shape}, expected {wanted}"
        raise AsrtoolError(what, "return (utterances, rows, output_size), see docs/how-to/new-encoder.md")


def check_loss(objective: Objective, loss: Any) -> None:
    """Raise AsrtoolError if `loss` of an objective is not a Loss of sums."""
    name = _path_of(objective)
    check_returned(name, loss, Loss)
    if not (isinstance(loss.total, Tensor) and loss.total.ndim == 0):
        found = f"shape {tuple(loss.total.shape)}" if isinstance(loss.total, Tensor) else type(loss.total).__name__
        raise AsrtoolError(f"{name} made a loss of {found}, expected a scalar tensor", "sum it over the utterances")


def _path_of(part: nn.Module) -> str:
    return f"{type(part).__module__}:{type(part).__qualname__}"


def save_model(path: Path, model: AcousticModel, info: dict[str, Any]) -> None:
    """Write `model` and `info`, atomically; AsrtoolError if the disk is full."""
    write_torch(path, {"format": FORMAT, "info": info, "weights": model.state_dict()})


def load_model(path: Path | str) -> tuple[AcousticModel, dict[str, Any]]:
    """Load a model in evaluation mode, and its info.

    Raises AsrtoolError if the file is missing, damaged, or of another format.
    """
    content = read_torch(path, "model file", ("format", "info", "weights"), mapped=True)
    if content["format"] != FORMAT:
        raise AsrtoolError(
            f"{path}: model file of format {content['format']}, expected {FORMAT}", "train and average again"
        )
    try:
        model = model_of(content["info"], str(path))
        model.load_state_dict(content["weights"], **({} if IS_TORCH_1 else {"assign": True}))
    except (KeyError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise AsrtoolError(f"{path}: weights that do not fit their settings: {reason}", "average again") from error
    return model.eval(), content["info"]


def model_of(info: dict[str, Any], origin: str) -> AcousticModel:
    """Build a model of the `info` of a model file, with random weights.

    `origin` names the file in an AsrtoolError.
    """
    if info.get("features", {}).get("speaker_vector"):
        what = f"{origin}: trained on features with i-vectors, which were removed"
        raise AsrtoolError(what, "compute the features and train the model again")
    model = load_section("model", info["model"], origin)
    return build_model(model, info["num_features"], info["num_tokens"], tree_of(info))


def tree_to_info(tree: Tree | None) -> dict[str, Any]:
    """Return the arrays of a decision tree for `info`; an empty dict for None."""
    if tree is None:
        return {}
    arrays = dataclasses.asdict(tree)
    return {"tree": {name: torch.from_numpy(array) for name, array in arrays.items()}}


def choose_device() -> torch.device:
    """Return the current GPU if torch has one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
