"""Optimizers, built from parameters and settings; the rate is set at each step."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from asrtool.distributed.strategies.update import NamedParameters
from asrtool.settings.registry import check_returned
from asrtool.settings.train import AdamW, Optimisation, Sgd


class Eager(torch.optim.Optimizer):
    """Base class: methods of torch without guards against compilation.

    The guards of `torch.optim` load torch._dynamo on the first call, which takes 1.6 s of CPU time: two fifths of the
    start of a process. A custom optimizer that is not `Eager` loads it.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class FastAdamW(Eager, torch.optim.AdamW):
    """The optimizer of torch, to the same bits."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


class FastSGD(Eager, torch.optim.SGD):
    """The optimizer of torch, to the same bits."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))


# torch 1.13, the last one that k2 on PyPI works with, has no fused optimizers on the CPU.
# Fused: one pass over the memory of a parameter.
FUSED: dict[str, Any] = {"fused": True} if "fused" in inspect.signature(torch.optim.SGD).parameters else {}


def build_optimizer(named_parameters: NamedParameters, settings: Optimisation) -> torch.optim.Optimizer:
    """Build the chosen optimizer; AsrtoolError if a custom one is invalid."""
    chosen = settings.optimizer
    optimizer: torch.optim.Optimizer = chosen.load()(named_parameters, chosen.settings, settings.peak_lr)
    check_returned(f"{settings.section}.optimizer = {chosen.name}", optimizer, torch.optim.Optimizer)
    return optimizer


def adamw(named_parameters: NamedParameters, settings: AdamW, learning_rate: float) -> torch.optim.Optimizer:
    """Build AdamW (Loshchilov and Hutter, 2019)."""
    return FastAdamW(decay_groups(named_parameters, settings.weight_decay), lr=learning_rate, **FUSED)


def sgd(named_parameters: NamedParameters, settings: Sgd, learning_rate: float) -> torch.optim.Optimizer:
    """Build SGD with momentum."""
    groups = decay_groups(named_parameters, settings.weight_decay)
    momentum, nesterov = settings.momentum, settings.nesterov
    return FastSGD(groups, lr=learning_rate, momentum=momentum, nesterov=nesterov, **FUSED)


def decay_groups(named_parameters: NamedParameters, weight_decay: float) -> list[dict[str, Any]]:
    """Return parameter groups: weight decay for matrices, not for gains and biases.

    Attention weights have three axes.
    """
    decays = [(parameter, parameter.ndim > 1 and not name.endswith("bias")) for name, parameter in named_parameters]
    return [
        {"params": [parameter for parameter, does in decays if does], "weight_decay": weight_decay},
        {"params": [parameter for parameter, does in decays if not does], "weight_decay": 0.0},
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use `rate` from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate
