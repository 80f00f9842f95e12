"""The loss of a batch, and of a whole set."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from asrtool.corpus.batches import Batch
from asrtool.log import bar
from asrtool.models import AcousticModel
from asrtool.models.criterion import Criterion
from asrtool.train.examples import ExampleBatch, Examples
from asrtool.train.precision import Precision


def batch_loss(model: AcousticModel, criterion: Criterion, batch: ExampleBatch, precision: Precision) -> Tensor:
    """Sum over the utterances of a batch, in nats."""
    device = precision.device
    feats_NTF = torch.from_numpy(batch.loaded.feats_NTF).to(device)
    feat_lens_N = torch.from_numpy(batch.loaded.feat_lens_N).to(device)
    with precision.autocast():
        log_probs_NTV, lens_N = model(feats_NTF, feat_lens_N)
    return criterion(log_probs_NTV, lens_N, batch.tokens_NU.to(device), batch.token_lens_N.to(device))


def mean_loss(
    model: AcousticModel,
    criterion: Criterion,
    examples: Examples,
    batches: Sequence[Batch],
    precision: Precision,
    after_batch: Callable[[], None],
) -> float:
    """Loss of `batches`, in nats a token, without dropout; `after_batch` may raise to end it early."""
    total, num_tokens = 0.0, 0
    model.eval()
    with torch.no_grad():
        for batch in bar(examples.load(batches), "dev", len(batches), "batch"):
            total += float(batch_loss(model, criterion, batch, precision))
            num_tokens += batch.num_tokens
            after_batch()
    model.train()
    return total / max(num_tokens, 1)
