"""A batch whose loss or gradient is not a number: saved, named and told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from asrtool.errors import AsrtoolError
from asrtool.models.torch_file import write_torch
from asrtool.train.examples import ExampleBatch

NUM_NAMED = 5  # utterances named in a message


def bad_batch(batch: ExampleBatch, step: int, what: str, out: Path) -> AsrtoolError:
    """Save `batch` in `out`; returns the error to raise."""
    path = out / f"bad-batch-{step:08d}.pt"
    loaded = batch.loaded
    content = {
        "step": step,
        "ids": batch.ids,
        "texts": [utterance.text for utterance in loaded.utterances],
        "feats_NTF": torch.from_numpy(loaded.feats_NTF),
        "feat_lens_N": torch.from_numpy(loaded.feat_lens_N),
    }
    write_torch(path, content)
    named = ", ".join(batch.ids[:NUM_NAMED]) + (", ..." if len(batch.ids) > NUM_NAMED else "")
    found = "" if np.isfinite(loaded.feats_NTF).all() else "; its features are not finite"
    return AsrtoolError(
        f"step {step}: {what}{found}; the batch of {len(batch.ids)} utterances ({named}) is saved in {path}",
        "remove bad utterances and make the features again, or lower train.peak_lr or train.clip_norm",
    )
