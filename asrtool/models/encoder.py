"""What every encoder offers: features to hidden rows.

Letters in names: N utterances, T frames or rows, F features of a frame, C channels of a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Encoder(nn.Module, ABC):
    """Features to hidden rows, one for every `subsampling` frames, the last of them filled up.

    It is built with its settings and the number of features of a frame. What an utterance is padded with, and how far,
    has no influence on its rows.
    """

    subsampling: int  # feature frames a row
    output_size: int  # C, channels of a row

    @abstractmethod
    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden rows (N, ceil(T / subsampling), C), and how many of them each utterance has (N,)."""

    def output_lens(self, feat_lens_N: Tensor) -> Tensor:
        """The rows that `forward` gives utterances of so many frames."""
        return torch.div(feat_lens_N + self.subsampling - 1, self.subsampling, rounding_mode="floor")
