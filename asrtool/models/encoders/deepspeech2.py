"""Deep Speech 2 (Amodei et al. 2015, arXiv 1512.02595): convolutions, then LSTMs.

Letters in names: N utterances, T frames or rows, F features of a frame or bins of a convolution, C channels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from asrtool.models.acoustic import Encoder
from asrtool.models.encoders.lstm import LstmLayer, backward_frames
from asrtool.models.encoders.stages import Carry, Part, run_parts
from asrtool.models.encoders.subsampling import is_padding
from asrtool.settings.models import DeepSpeech2 as DeepSpeech2Settings
from asrtool.settings.models import Lstm

MOMENTUM = 0.1  # weight of a batch in the running statistics
EPSILON = 1e-5


class MaskedBatchNorm(nn.Module):
    """Batch normalisation of (..., C) that ignores padding, in float32.

    The running statistics are float buffers, which learners average as weights. If its weights are frozen
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
        """Return the same shape, float32; `is_padding` expands to it without channels."""
        with torch.autocast(values.device.type, enabled=False):
            values = values.float()
            is_trained = self.training and self.weight.requires_grad
            running = self.running_mean_C, self.running_var_C
            mean_C, var_C = self._statistics(values, is_padding) if is_trained else running
            return (values - mean_C) * (var_C + EPSILON).rsqrt() * self.weight + self.bias

    def _statistics(self, values: Tensor, is_padding: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of this batch, and update the running ones.

        The running variance is unbiased, as in torch. A batch of one value a channel leaves it as it is.
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


KERNELS = ((11, 41), (11, 21))  # frames and bins, table 1 there
STRIDES = ((2, 2), (1, 2))
MAX_ACTIVATION = 20.0  # clip of a convolution's output, section 3


class DeepSpeech2(Encoder):
    """Encoder with a row for two frames and batch normalisation before each layer."""

    def __init__(self, settings: DeepSpeech2Settings, num_features: int) -> None:
        super().__init__()
        self.subsampling = settings.frames_a_row
        channels = settings.num_channels
        self.convolutions = nn.ModuleList(
            Convolution(before, channels, kernel, stride)
            for before, kernel, stride in zip((1, channels), KERNELS, STRIDES, strict=True)
        )
        width = settings.hidden_size * (2 if settings.bidirectional else 1)
        widths = [channels * -(-num_features // 4)] + [width] * (settings.num_layers - 1)
        lstm = Lstm(hidden_size=settings.hidden_size, bidirectional=settings.bidirectional)
        self.norms = nn.ModuleList(MaskedBatchNorm(input_size) for input_size in widths)
        self.layers = nn.ModuleList(LstmLayer(input_size, lstm) for input_size in widths)
        num_ahead = 0 if settings.bidirectional else settings.lookahead
        self.lookahead = Lookahead(width, num_ahead) if num_ahead else None
        self.dropout = nn.Dropout(settings.dropout)
        self.output_size = width

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """Encode features, as Encoder.forward."""
        hidden_NTC, lens_N = run_parts(self.parts(), feats_NTF, feat_lens_N)
        return hidden_NTC, lens_N

    def parts(self) -> Sequence[Part]:
        """Return the convolutions, then the LSTM layers with normalisation."""
        layers = [
            Part(functools.partial(self._apply_layer, norm, layer), norm, layer)
            for norm, layer in zip(self.norms, self.layers, strict=True)
        ]
        ahead = () if self.lookahead is None else (self.lookahead,)
        return [Part(self._begin, self.convolutions), *layers, Part(self._end, *ahead)]

    def _begin(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> Carry:
        lens_N = self.output_lens(feat_lens_N)
        hidden_NTFC = feats_NTF[..., None]
        hidden_NTFC = self.convolutions[0](hidden_NTFC, feat_lens_N, lens_N)
        hidden_NTFC = self.convolutions[1](hidden_NTFC, lens_N, lens_N)
        hidden_TNC = hidden_NTFC.flatten(2).transpose(0, 1)
        num_rows = hidden_TNC.shape[0]
        return hidden_TNC, lens_N, is_padding(lens_N, num_rows).T, backward_frames(lens_N, num_rows)

    def _apply_layer(
        self,
        norm: nn.Module,
        layer: nn.Module,
        hidden_TNC: Tensor,
        lens_N: Tensor,
        is_padding_TN: Tensor,
        backward_TN: Tensor,
    ) -> Carry:
        hidden_TNC = self.dropout(layer(norm(hidden_TNC, is_padding_TN), backward_TN))
        return hidden_TNC, lens_N, is_padding_TN, backward_TN

    def _end(self, hidden_TNC: Tensor, lens_N: Tensor, is_padding_TN: Tensor, _: Tensor) -> Carry:
        if self.lookahead is not None:
            hidden_TNC = self.lookahead(hidden_TNC, is_padding_TN)
        return hidden_TNC.transpose(0, 1), lens_N


class Convolution(nn.Module):
    """Convolution over time and frequency, normalised by channel.

    It is clipped to 0 and MAX_ACTIVATION.
    """

    def __init__(self, num_before: int, num_channels: int, kernel: tuple[int, int], stride: tuple[int, int]) -> None:
        super().__init__()
        padding = (kernel[0] // 2, kernel[1] // 2)
        self.convolution = nn.Conv2d(num_before, num_channels, kernel, stride, padding, bias=False)
        self.norm = MaskedBatchNorm(num_channels)

    def forward(self, values_NTFC: Tensor, lens_N: Tensor, output_lens_N: Tensor) -> Tensor:
        """Convolve (N, T, F, C) to (N, T', F', C'); padding has no influence."""
        values_NTFC = values_NTFC.masked_fill(is_padding(lens_N, values_NTFC.shape[1])[..., None, None], 0.0)
        seen_NTFC = self.convolution(values_NTFC.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        is_padding_NT1 = is_padding(output_lens_N, seen_NTFC.shape[1])[..., None]
        clipped_NTFC: Tensor = self.norm(seen_NTFC, is_padding_NT1).clamp(0.0, MAX_ACTIVATION)
        return clipped_NTFC


class Lookahead(nn.Module):
    """Weighted sum of a row and the next ones, per channel.

    Source: section 3.7; Wang et al. 2016.
    """

    def __init__(self, size: int, num_ahead: int) -> None:
        super().__init__()
        self.num_ahead = num_ahead
        self.convolution = nn.Conv1d(size, size, num_ahead + 1, groups=size, bias=False)

    def forward(self, hidden_TNC: Tensor, is_padding_TN: Tensor) -> Tensor:
        """Return the same shape; rows after the end count as zeros."""
        hidden_NCT = hidden_TNC.masked_fill(is_padding_TN[..., None], 0.0).permute(1, 2, 0)
        seen_NCT: Tensor = self.convolution(nn.functional.pad(hidden_NCT, (0, self.num_ahead)))
        return seen_NCT.permute(2, 0, 1)
