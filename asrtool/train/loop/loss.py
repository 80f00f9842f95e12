"""The loss of a batch, and of a whole set."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from asrtool.log import bar
from asrtool.models.acoustic import AcousticModel, Loss
from asrtool.models.precision import Precision
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.source import DevSet, Planned
from asrtool.train.loop.pipeline import Pipeline

EMULATED_GRADIENT = 1e-3  # gradient of every weight


@dataclass
class Sums:
    """Losses of several batches; divided once, when reported."""

    total: float = 0.0  # nats
    normaliser: int = 0
    figures: dict[str, float] = field(default_factory=dict)  # further sums of an objective, by name

    def add(self, total: float, normaliser: int, figures: Mapping[str, float]) -> None:
        """Add the sums of a batch, or other sums."""
        self.total += total
        self.normaliser += normaliser
        for name, value in figures.items():
            self.figures[name] = self.figures.get(name, 0.0) + value

    def means(self) -> dict[str, float]:
        """Return loss in nats and figures a target; `word_errors` a word."""
        divisor = max(self.normaliser, 1)
        means = {"loss": self.total / divisor, **{name: value / divisor for name, value in self.figures.items()}}
        if words := means.pop("words", 0):
            means["word_errors"] /= words
        return means


def batch_loss(model: AcousticModel, batch: TrainingBatch, precision: Precision) -> Loss:
    """Return the loss of a batch."""
    device = precision.device
    inputs_NT = torch.from_numpy(batch.inputs_NT).to(device, non_blocking=True)  # asynchronous if it is pinned
    input_lens_N = torch.from_numpy(batch.input_lens_N).to(device)
    targets = batch.targets_NU.to(device), batch.target_lens_N.to(device)
    others_NT = None if batch.others_NT is None else torch.from_numpy(batch.others_NT).to(device)
    with precision.autocast():
        return model.loss(inputs_NT, input_lens_N, *targets, others_NT)


class LossModule(nn.Module):
    """Model with its loss, as strategies train it; parameters are the model's."""

    def __init__(self, model: AcousticModel, precision: Precision, pipeline: Pipeline | None = None) -> None:
        """Take the model; `pipeline` computes its loss if given."""
        super().__init__()
        self.model = model
        self.precision = precision
        self.pipeline = pipeline
        self.figures: Mapping[str, float] = {}  # figures of the last batch

    def forward(self, batch: TrainingBatch | None) -> Tensor:
        """Return the loss of a batch in nats, summed over utterances.

        None gives a zero that touches every parameter.
        """
        if batch is None:
            return zero_loss(self.model)
        loss = self.pipeline.loss(batch) if self.pipeline else batch_loss(self.model, batch, self.precision)
        self.figures = loss.figures
        return loss.total


class EmulatedCompute(nn.Module):
    """Emulated LossModule that takes `compute_ms`; gradients are small and equal."""

    def __init__(self, model: nn.Module, compute_ms: float) -> None:
        super().__init__()
        self.model = model
        self.compute_s = compute_ms / 1000
        self.figures: Mapping[str, float] = {}

    def forward(self, batch: TrainingBatch | None) -> Tensor:
        """Return a loss with EMULATED_GRADIENT times the normaliser as each gradient."""
        if batch is None:
            return zero_loss(self.model)
        time.sleep(self.compute_s)
        total = torch.stack([parameter.sum() for parameter in self.model.parameters()]).sum()
        return EMULATED_GRADIENT * batch.normaliser * (total - total.detach() + 1)


def zero_loss(model: nn.Module) -> Tensor:
    """Return 0 with gradients of 0 for all weights."""
    return 0 * torch.stack([parameter.sum() for parameter in model.parameters()]).sum()


def sum_loss(
    model: AcousticModel,
    dev_set: DevSet,
    batches: Sequence[Planned],
    precision: Precision,
    after_batch: Callable[[], None],
) -> Sums:
    """Return losses of `batches` without dropout; `after_batch` may raise to end it.

    The model is left in training mode.
    """
    sums = Sums()
    model.eval()
    try:
        with torch.no_grad():
            for batch in bar(dev_set.load(batches), "dev", len(batches), "batch"):
                loss = batch_loss(model, batch, precision)
                sums.add(float(loss.total), loss.normaliser, loss.figures)
                after_batch()
    finally:
        model.train()
    return sums


@contextlib.contextmanager
def with_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Give `model` these weights of its `state_dict` inside the context."""
    own = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(weights)
    try:
        yield
    finally:
        model.load_state_dict(own)
