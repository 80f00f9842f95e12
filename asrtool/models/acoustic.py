"""What every acoustic model offers to training and decoding.

Letters in names: N utterances, T frames, F features of a frame, V tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class AcousticModel(nn.Module, ABC):
    """Features to log-probabilities of tokens, of which token 0 is the blank."""

    @abstractmethod
    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities (N, T', V) in float32 and their lengths (N,)."""

    @abstractmethod
    def output_lens(self, feat_lens_N: Tensor) -> Tensor:
        """The lengths that `forward` would return."""
