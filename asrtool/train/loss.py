"""The loss of a batch, and of a whole set."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from asrtool.corpus.batches import Batch
from asrtool.log import bar
from asrtool.models import AcousticModel
from asrtool.models.criterion import Criterion
from asrtool.train.examples import ExampleBatch, Examples
from asrtool.train.precision import Precision

EMULATED_GRADIENT = 1e-3  # of every weight


def batch_loss(model: AcousticModel, criterion: Criterion, batch: ExampleBatch, precision: Precision) -> Tensor:
    """Sum over the utterances of a batch, in nats."""
    device = precision.device
    feats_NTF = torch.from_numpy(batch.loaded.feats_NTF).to(device)
    feat_lens_N = torch.from_numpy(batch.loaded.feat_lens_N).to(device)
    with precision.autocast():
        log_probs_NTV, lens_N = model(feats_NTF, feat_lens_N)
    return criterion(log_probs_NTV, lens_N, batch.tokens_NU.to(device), batch.token_lens_N.to(device))


class Task(nn.Module):
    """A model with its loss: what strategies train. Parameters are those of `model`."""

    def __init__(self, model: AcousticModel, criterion: Criterion, precision: Precision) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion
        self.precision = precision

    def forward(self, batch: ExampleBatch | None) -> Tensor:
        """The loss of a batch, summed over its utterances, in nats; for None a zero that hangs on all weights."""
        if batch is None:
            return zero_loss(self.model)
        return batch_loss(self.model, self.criterion, batch, self.precision)


class Wait(nn.Module):
    """In the place of a Task: takes `compute_ms`, and gives every weight the same small gradient."""

    def __init__(self, model: nn.Module, compute_ms: float) -> None:
        super().__init__()
        self.model = model
        self.compute_s = compute_ms / 1000

    def forward(self, batch: ExampleBatch | None) -> Tensor:
        """EMULATED_GRADIENT times the number of tokens, as the gradient of every weight."""
        if batch is None:
            return zero_loss(self.model)
        time.sleep(self.compute_s)
        total = torch.stack([parameter.sum() for parameter in self.model.parameters()]).sum()
        return EMULATED_GRADIENT * batch.num_tokens * (total - total.detach() + 1)


def zero_loss(model: nn.Module) -> Tensor:
    """0, with gradients of 0 for all weights."""
    return 0 * torch.stack([parameter.sum() for parameter in model.parameters()]).sum()


def sum_loss(
    model: AcousticModel,
    criterion: Criterion,
    examples: Examples,
    batches: Sequence[Batch],
    precision: Precision,
    after_batch: Callable[[], None],
) -> tuple[float, int]:
    """Loss of `batches` in nats, and their tokens, without dropout; `after_batch` may raise to end it early."""
    total, num_tokens = 0.0, 0
    model.eval()
    with torch.no_grad():
        for batch in bar(examples.load(batches), "dev", len(batches), "batch"):
            total += float(batch_loss(model, criterion, batch, precision))
            num_tokens += batch.num_tokens
            after_batch()
    model.train()
    return total, num_tokens
