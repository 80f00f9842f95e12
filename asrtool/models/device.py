"""Where models are computed."""

from __future__ import annotations

import torch


def choose_device() -> torch.device:
    """A GPU where torch sees one; CUDA_VISIBLE_DEVICES chooses among several."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
