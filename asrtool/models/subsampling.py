"""Convolutions that make a row of four frames.

Letters in names: N utterances, T frames or rows, F features, C channels of a convolution, D values of a row.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FACTOR = 4


def is_padding(lens_N: Tensor, num: int) -> Tensor:
    """(N, num): what is behind the end of each utterance."""
    return torch.arange(num, device=lens_N.device) >= lens_N[:, None]


class ConvSubsampling(nn.Module):
    """Two convolutions over time and frequency of 3 x 3, each with a stride of 2 both ways, then a linear layer.

    What is behind the end of an utterance is 0 before each of them, as what they are padded with, so it has no
    influence.
    """

    def __init__(self, num_features: int, num_channels: int, size: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, num_channels, 3, stride=2, padding=1)
        self.second = nn.Conv2d(num_channels, num_channels, 3, stride=2, padding=1)
        self.output = nn.Linear(num_channels * -(-num_features // FACTOR), size)

    def forward(self, feats_NTF: Tensor, lens_N: Tensor) -> Tensor:
        """(N, T, F) to (N, ceil(T / 4), D)."""
        hidden_NCTF = feats_NTF[:, None]
        for convolution in (self.first, self.second):
            hidden_NCTF = hidden_NCTF.masked_fill(is_padding(lens_N, hidden_NCTF.shape[2])[:, None, :, None], 0.0)
            hidden_NCTF = convolution(hidden_NCTF).relu()
            lens_N = torch.div(lens_N + 1, 2, rounding_mode="floor")
        rows_NTD: Tensor = self.output(hidden_NCTF.transpose(1, 2).flatten(2))
        return rows_NTD
