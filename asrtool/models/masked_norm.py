"""Batch normalisation (Ioffe and Szegedy 2015, arXiv 1502.03167) over the real frames of a batch alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

MOMENTUM = 0.1  # of a batch in the running statistics
EPSILON = 1e-5


class MaskedBatchNorm(nn.Module):
    """Of values (..., C) those that are padding neither count nor are changed by others; all in float32.

    The running statistics are float buffers, which learners average as they do weights. Where its weights are frozen
    (`train.frozen`), so are they, and training normalises by them as decoding does.
    """

    running_mean_C: Tensor
    running_var_C: Tensor

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_channels))
        self.bias = nn.Parameter(torch.zeros(num_channels))
        self.register_buffer("running_mean_C", torch.zeros(num_channels))
        self.register_buffer("running_var_C", torch.ones(num_channels))

    def forward(self, values: Tensor, is_padding: Tensor) -> Tensor:
        """The same shape, float32; `is_padding` expands to the shape of `values` without channels."""
        with torch.autocast(values.device.type, enabled=False):
            values = values.float()
            is_trained = self.training and self.weight.requires_grad
            mean_C, var_C = self._statistics(values, is_padding) if is_trained else self._running()
            return (values - mean_C) * (var_C + EPSILON).rsqrt() * self.weight + self.bias

    def _running(self) -> tuple[Tensor, Tensor]:
        return self.running_mean_C, self.running_var_C

    def _statistics(self, values: Tensor, is_padding: Tensor) -> tuple[Tensor, Tensor]:
        """Of this batch; the running ones follow them, with the unbiased variance, as torch has it.

        A batch of one value a channel has no variance, and leaves the running one.
        """
        axes = tuple(range(values.ndim - 1))
        is_out = is_padding.expand(values.shape[:-1])[..., None]
        num = (~is_out).sum()
        mean_C = values.masked_fill(is_out, 0.0).sum(axes) / num
        var_C = (values - mean_C).masked_fill(is_out, 0.0).square().sum(axes) / num
        with torch.no_grad():
            self.running_mean_C.lerp_(mean_C, MOMENTUM)
            unbiased_C = torch.where(num > 1, var_C * num / (num - 1).clamp(min=1), self.running_var_C)
            self.running_var_C.lerp_(unbiased_C, MOMENTUM)
        return mean_C, var_C
