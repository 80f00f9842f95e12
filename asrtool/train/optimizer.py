"""Optimizers by name."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from asrtool.config import Train

# torch 1.13, the last one that k2 on PyPI works with, has no fused optimizers on the processor.
FUSED: dict[str, Any] = {"fused": True} if "fused" in inspect.signature(torch.optim.SGD).parameters else {}


def build_optimizer(parameters: Sequence[nn.Parameter], settings: Train) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter, 2019) or SGD with momentum. Weight decay is for matrices, not for biases and gains.

    Its learning rate is set before every step from the schedule. Fused: one pass over the memory of a parameter.
    """
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=settings.peak_lr, **FUSED)
    return torch.optim.SGD(groups, lr=settings.peak_lr, momentum=settings.momentum, **FUSED)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use `rate` from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate
