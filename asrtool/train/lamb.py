"""LAMB: Adam whose step in a tensor is a fraction of the norm of its weights (You et al., arXiv 1904.00962)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from asrtool.train.eager import Eager

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6  # as in the paper


class Lamb(Eager):
    """Algorithm 2 there, with the identity as phi: of m and v, corrected for their beginning at 0,

        u = m / (sqrt(v) + epsilon) + weight_decay w
        w <- w - lr |w| / |u| u

    for each tensor w by itself; where w or u is 0, the fraction of the norms is 1.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float) -> None:
        """`groups` name their ``params`` and ``weight_decay``."""
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One, on the gradients of all parameters that have one."""
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
