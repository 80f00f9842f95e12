"""Convolutions that make a row of several frames.

Letters in names: N utterances, T frames or rows, F features, C channels of a convolution, D values of a row.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

STRIDES = {1: (1, 1), 2: (2, 1), 3: (3, 1), 4: (2, 2)}  # over time, of each convolution, by the frames of a row
BINS = 4  # neighbouring features that become one


def is_padding(lens_N: Tensor, num: int) -> Tensor:
    """Return a mask of positions after each utterance's end, (N, num)."""
    return torch.arange(num, device=lens_N.device) >= lens_N[:, None]


class ConvSubsampling(nn.Module):
    """Two 3 x 3 convolutions with frequency stride 2, then a linear layer.

    Over time their strides make a row of `num_frames` frames, 1 to 4. With 3 frames a row, the last frame of an
    utterance that fills all its rows is not used. Values after the end of an utterance are 0 before each convolution,
    so padding has no influence.
    """

    def __init__(self, num_features: int, num_channels: int, size: int, num_frames: int) -> None:
        super().__init__()
        self.strides = STRIDES[num_frames]
        self.first = nn.Conv2d(1, num_channels, 3, stride=(self.strides[0], 2), padding=1)
        self.second = nn.Conv2d(num_channels, num_channels, 3, stride=(self.strides[1], 2), padding=1)
        self.output = nn.Linear(num_channels * -(-num_features // BINS), size)

    def forward(self, feats_NTF: Tensor, lens_N: Tensor) -> Tensor:
        """Subsample (N, T, F) to (N, ceil(T / num_frames), D)."""
        is_padding_NT = is_padding(lens_N, feats_NTF.shape[1])
        hidden_NCTF = self.first(feats_NTF.masked_fill(is_padding_NT[:, :, None], 0.0)[:, None])
        lens_N = torch.div(lens_N + self.strides[0] - 1, self.strides[0], rounding_mode="floor")
        is_padding_NT = is_padding(lens_N, hidden_NCTF.shape[2])
        # In place and without a gradient, as this tensor is large; that of the ReLU is 0 where its output is
        with torch.no_grad():
            hidden_NCTF.masked_fill_(is_padding_NT[:, None, :, None], 0.0)
        hidden_NCTF = self.second(hidden_NCTF.relu_()).relu_()
        rows_NTD: Tensor = self.output(hidden_NCTF.transpose(1, 2).flatten(2))
        return rows_NTD
