"""From gradients to weights: the one place where gradients are computed and clipped, and an optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

NamedParameters = Sequence[tuple[str, nn.Parameter]]  # names as in the `state_dict` of the model


class Update:
    """Computes gradients, clips them, applies them where there is anything to learn, and clears them.

    `apply` is what they are applied by: the optimizer steps here, unless a strategy sends them elsewhere.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        optimizer: torch.optim.Optimizer,
        clip_norm: float,
        apply: Callable[[], object] | None = None,
    ) -> None:
        """The norm is that of all `parameters`, summed in their order."""
        self.parameters = parameters
        self.optimizer = optimizer
        self.clip_norm = clip_norm
        self.apply = apply or optimizer.step
        self.num_steps = 0

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of `loss`."""
        loss.backward()

    def step(self) -> float:
        """The norm of the gradients before clipping.

        When it is not finite the weights stay as they were; when it is zero there was nothing to learn, and the
        optimizer keeps its momentum.
        """
        norm = float(nn.utils.clip_grad_norm_(self.parameters, self.clip_norm))
        if math.isfinite(norm) and norm > 0:
            self.apply()
            self.num_steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        return norm
