"""Optimizers, built from parameters and settings; the rate is set at each step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from asrtool.distributed.strategies.update import NamedParameters
from asrtool.settings.registry import check_returned
from asrtool.settings.train import AdamW, Optimisation, Sgd
from asrtool.settings.train import Lamb as LambSettings

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6  # as in the paper


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


class Lamb(Eager):
    """LAMB (You et al., arXiv 1904.00962, algorithm 2), with the identity as phi.

    For m and v, corrected for their zero start, and each tensor w,

        u = m / (sqrt(v) + epsilon) + weight_decay w
        w <- w - lr |w| / |u| u

    If w or u is 0, the ratio of norms is 1.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float) -> None:
        """Take `groups`, which name their ``params`` and ``weight_decay``."""
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        assert closure is None, "a loss is not computed again"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, parameter.grad, group)

    def _step(self, weights: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weights]
        if not state:
            state.update(step=0, mean=torch.zeros_like(weights), square=torch.zeros_like(weights))
        state["step"] += 1
        mean = state["mean"].mul_(BETA_1).add_(gradient, alpha=1 - BETA_1)
        square = state["square"].mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        deviation = (square / (1 - BETA_2 ** state["step"])).sqrt_().add_(EPSILON)
        change = (mean / (1 - BETA_1 ** state["step"])).div_(deviation).add_(weights, alpha=group["weight_decay"])
        norms = weights.norm() / change.norm()
        fraction = torch.where((norms > 0) & norms.isfinite(), norms, torch.ones_like(norms))  # stays on the device
        weights.sub_(change.mul_(group["lr"] * fraction))


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


def lamb(named_parameters: NamedParameters, settings: LambSettings, learning_rate: float) -> torch.optim.Optimizer:
    """Build LAMB (You et al., arXiv 1904.00962)."""
    return Lamb(decay_groups(named_parameters, settings.weight_decay), learning_rate)


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
