"""The loss of a batch, and of a whole set."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from asrtool.corpus.batches import Batch
from asrtool.log import bar
from asrtool.models.acoustic import AcousticModel
from asrtool.models.objective import Loss
from asrtool.train.examples import ExampleBatch, Examples
from asrtool.train.precision import Precision

EMULATED_GRADIENT = 1e-3  # of every weight


def batch_loss(model: AcousticModel, batch: ExampleBatch, precision: Precision) -> Loss:
    """The loss of a batch."""
    device = precision.device
    feats_NTF = torch.from_numpy(batch.loaded.feats_NTF).to(device)
    feat_lens_N = torch.from_numpy(batch.loaded.feat_lens_N).to(device)
    with precision.autocast():
        return model.loss(feats_NTF, feat_lens_N, batch.targets_NU.to(device), batch.target_lens_N.to(device))


class Task(nn.Module):
    """A model with its loss: what strategies train. Parameters are those of `model`."""

    def __init__(self, model: AcousticModel, precision: Precision) -> None:
        super().__init__()
        self.model = model
        self.precision = precision

    def forward(self, batch: ExampleBatch | None) -> Tensor:
        """The loss of a batch, in nats, summed over its utterances; for None a zero that touches every parameter."""
        if batch is None:
            return zero_loss(self.model)
        return batch_loss(self.model, batch, self.precision).total


class EmulatedCompute(nn.Module):
    """In the place of a Task: takes `compute_ms`, and gives every weight the same small gradient."""

    def __init__(self, model: nn.Module, compute_ms: float) -> None:
        super().__init__()
        self.model = model
        self.compute_s = compute_ms / 1000

    def forward(self, batch: ExampleBatch | None) -> Tensor:
        """EMULATED_GRADIENT times the normaliser, as the gradient of every weight."""
        if batch is None:
            return zero_loss(self.model)
        time.sleep(self.compute_s)
        total = torch.stack([parameter.sum() for parameter in self.model.parameters()]).sum()
        return EMULATED_GRADIENT * batch.normaliser * (total - total.detach() + 1)


def zero_loss(model: nn.Module) -> Tensor:
    """0, with gradients of 0 for all weights."""
    return 0 * torch.stack([parameter.sum() for parameter in model.parameters()]).sum()


def sum_loss(
    model: AcousticModel,
    examples: Examples,
    batches: Sequence[Batch],
    precision: Precision,
    after_batch: Callable[[], None],
) -> tuple[float, int]:
    """Loss of `batches` in nats, and what it is divided by, without dropout; `after_batch` may raise to end it."""
    total, normaliser = 0.0, 0
    model.eval()
    with torch.no_grad():
        for batch in bar(examples.load(batches), "dev", len(batches), "batch"):
            loss = batch_loss(model, batch, precision)
            total += float(loss.total)
            normaliser += loss.normaliser
            after_batch()
    model.train()
    return total, normaliser
