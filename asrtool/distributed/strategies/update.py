"""Updates: the one place that computes and clips gradients and steps an optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

FIRST_SCALE, MIN_SCALE, MAX_SCALE = 2.0**16, 1.0, 2.0**24
GROWTH_STEPS = 2000  # without an overflow, after which the scale doubles


class LossScale:
    """Scale of a loss in half precision, a power of two.

    The loss is multiplied by `value`, and its gradients are divided by it. A step whose gradients
    are not finite is skipped, and halves the scale; after `GROWTH_STEPS` others it doubles.
    Learners that average their gradients find the same ones not finite, so their scales stay the
    same.
    """

    def __init__(self) -> None:
        self.value = FIRST_SCALE
        self.num_good = 0  # steps since the scale was changed
        self.num_skipped = 0  # steps of the whole training
        self.has_skipped = False  # True if the last step was skipped

    def apply(self, loss: Tensor) -> Tensor:
        """Scale a loss, before its gradients are computed."""
        return loss * self.value

    def note(self, norm: float) -> None:
        """Note a step's norm; at the smallest scale an infinite one is no overflow."""
        self.has_skipped = not math.isfinite(norm) and self.value > MIN_SCALE
        if self.has_skipped:
            self.value, self.num_good = max(self.value / 2, MIN_SCALE), 0
            self.num_skipped += 1
            return
        self.num_good += 1
        if self.num_good == GROWTH_STEPS:
            self.value, self.num_good = min(2 * self.value, MAX_SCALE), 0

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint keeps."""
        return {"value": self.value, "num_good": self.num_good, "num_skipped": self.num_skipped}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from an earlier `state`."""
        self.value, self.num_good, self.num_skipped = state["value"], state["num_good"], state["num_skipped"]


NamedParameters = Sequence[tuple[str, nn.Parameter]]  # names as in the `state_dict` of the model


def trained_parameters(model: nn.Module) -> NamedParameters:
    """List the parameters that are not frozen, with their names."""
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


@dataclass(eq=False)
class Update:
    """Update of the weights: computes, clips, applies and clears gradients, if any."""

    parameters: Sequence[nn.Parameter]  # all: the norm is summed in their order, without the scale
    optimizer: torch.optim.Optimizer
    clip_norm: float
    apply: Callable[[], object] | None = None  # instead of its step, if a strategy sends the gradients elsewhere
    loss_scale: LossScale | None = None
    num_steps: int = 0

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of `loss`."""
        (self.loss_scale.apply(loss) if self.loss_scale else loss).backward()

    def step(self) -> float:
        """Apply the gradients, and return their norm before clipping.

        If it is not finite the weights stay as they were. If it is zero there was nothing to learn,
        and the optimizer keeps its momentum.
        """
        scale = self.loss_scale.value if self.loss_scale else 1.0
        norm = clip_gradients(self.parameters, self.clip_norm, scale)
        if self.loss_scale:
            self.loss_scale.note(norm)
        if math.isfinite(norm) and norm > 0:
            (self.apply or self.optimizer.step)()
            self.num_steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        return norm


def clip_gradients(parameters: Iterable[nn.Parameter], clip_norm: float, scale: float = 1.0) -> float:
    """Divide gradients by `scale`, and scale them to a norm of at most `clip_norm`.

    Returns the norm in between. Without a scale it does the same, bit for bit, as torch's
    `clip_grad_norm_`. But that multiplies by 1 if there is nothing to clip, and so reads and writes
    the memory of all gradients.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return 0.0
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) / scale
    factor = float(clip_norm / (norm + 1e-6))
    factor = (1.0 if factor >= 1 else factor) / scale
    if factor != 1:
        torch._foreach_mul_(gradients, factor)
    return float(norm)
