"""Optimizers: each gets parameters, its settings and a learning rate, which is set again before every step."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from asrtool.distributed.update import NamedParameters
from asrtool.registry import check_returned
from asrtool.train import eager
from asrtool.train.lamb import Lamb
from asrtool.train.settings import AdamW, Optimisation, Sgd
from asrtool.train.settings import Lamb as LambSettings

# torch 1.13, the last one that k2 on PyPI works with, has no fused optimizers on the CPU.
# Fused: one pass over the memory of a parameter.
FUSED: dict[str, Any] = {"fused": True} if "fused" in inspect.signature(torch.optim.SGD).parameters else {}


def build_optimizer(named_parameters: NamedParameters, settings: Optimisation) -> torch.optim.Optimizer:
    """The optimizer that the settings choose, for these parameters; AsrtoolError where a person's own is none."""
    chosen = settings.optimizer
    optimizer: torch.optim.Optimizer = chosen.load()(named_parameters, chosen.settings, settings.peak_lr)
    check_returned(f"{settings.section}.optimizer = {chosen.name}", optimizer, torch.optim.Optimizer)
    return optimizer


def adamw(named_parameters: NamedParameters, settings: AdamW, learning_rate: float) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter, 2019)."""
    return eager.AdamW(decay_groups(named_parameters, settings.weight_decay), lr=learning_rate, **FUSED)


def sgd(named_parameters: NamedParameters, settings: Sgd, learning_rate: float) -> torch.optim.Optimizer:
    """SGD with momentum."""
    groups = decay_groups(named_parameters, settings.weight_decay)
    momentum, nesterov = settings.momentum, settings.nesterov
    return eager.SGD(groups, lr=learning_rate, momentum=momentum, nesterov=nesterov, **FUSED)


def lamb(named_parameters: NamedParameters, settings: LambSettings, learning_rate: float) -> torch.optim.Optimizer:
    """LAMB (You et al., arXiv 1904.00962)."""
    return Lamb(decay_groups(named_parameters, settings.weight_decay), learning_rate)


def decay_groups(named_parameters: NamedParameters, weight_decay: float) -> list[dict[str, Any]]:
    """Weight decay is for matrices, not for gains and biases; those of attention have three axes."""
    decays = [(parameter, parameter.ndim > 1 and not name.endswith("bias")) for name, parameter in named_parameters]
    return [
        {"params": [parameter for parameter, does in decays if does], "weight_decay": weight_decay},
        {"params": [parameter for parameter, does in decays if not does], "weight_decay": 0.0},
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use `rate` from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate
