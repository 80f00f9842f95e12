"""bf16 on any CPU, as a training computes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from asrtool.models.precision import Precision


@contextmanager
def in_bf16() -> Iterator[None]:
    """Compute matrix products in bf16 inside the context; afterwards the process is as before."""
    has_onednn, precision = torch.backends.mkldnn.enabled, Precision(torch.device("cpu"), "bf16")
    precision.prepare_process()
    try:
        with precision.autocast():
            yield
    finally:
        torch.backends.mkldnn.enabled = has_onednn
