"""Conformer (Gulati et al. 2020, arXiv 2005.08100): self-attention for what is far, convolutions for what is near.

Letters in names: N utterances, T frames or rows, F features of a frame, D values of a row, P distances.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from torch import Tensor, nn

from asrtool.models.acoustic import Encoder
from asrtool.models.parts import Carry, Part, run_parts
from asrtool.models.relative_attention import RelativeAttention, distances
from asrtool.models.settings import Conformer as ConformerSettings
from asrtool.models.subsampling import ConvSubsampling, is_padding


class Conformer(Encoder):
    """A row for every four frames passes `num_layers` blocks."""

    def __init__(self, settings: ConformerSettings, num_features: int) -> None:
        super().__init__()
        self.subsampling, self.output_size = settings.frames_a_row, settings.size
        self.frames = ConvSubsampling(num_features, settings.size, settings.size, self.subsampling)
        self.dropout = nn.Dropout(settings.dropout)
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.num_layers))

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """As Encoder.forward."""
        rows_NTD, lens_N = run_parts(self.parts(), feats_NTF, feat_lens_N)
        return rows_NTD, lens_N

    def parts(self) -> Sequence[Part]:
        """Frames to rows, then the blocks."""
        blocks = [Part(functools.partial(self._apply_block, block), block) for block in self.blocks]
        return [Part(self._begin, self.frames), *blocks, Part(self._end)]

    def _begin(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> Carry:
        rows_NTD = self.dropout(self.frames(feats_NTF, feat_lens_N))
        lens_N = self.output_lens(feat_lens_N)
        num_rows = rows_NTD.shape[1]
        return rows_NTD, lens_N, distances(num_rows, rows_NTD), is_padding(lens_N, num_rows)

    def _apply_block(
        self, block: nn.Module, rows_NTD: Tensor, lens_N: Tensor, distances_PD: Tensor, is_padding_NT: Tensor
    ) -> Carry:
        return block(rows_NTD, distances_PD, is_padding_NT), lens_N, distances_PD, is_padding_NT

    def _end(self, rows_NTD: Tensor, lens_N: Tensor, *_: Tensor) -> Carry:
        return rows_NTD, lens_N


class Block(nn.Module):
    """Half a feed-forward network, attention, convolution, the other half; each adds to the rows."""

    def __init__(self, settings: ConformerSettings) -> None:
        super().__init__()
        size, dropout = settings.size, settings.dropout
        self.before, self.after = (feed_forward(size, settings.feed_forward_size, dropout) for _ in range(2))
        self.attention_norm = nn.LayerNorm(size)
        self.attention = RelativeAttention(size, settings.num_heads, dropout)
        self.convolution = Convolution(size, settings.kernel_size, dropout)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(size)

    def forward(self, rows_NTD: Tensor, distances_PD: Tensor, is_padding_NT: Tensor) -> Tensor:
        """The same shape."""
        rows_NTD = rows_NTD + 0.5 * self.before(rows_NTD)
        attended_NTD = self.attention(self.attention_norm(rows_NTD), distances_PD, is_padding_NT)
        rows_NTD = rows_NTD + self.dropout(attended_NTD)
        rows_NTD = rows_NTD + self.convolution(rows_NTD, is_padding_NT)
        rows_NTD = rows_NTD + 0.5 * self.after(rows_NTD)
        normalised_NTD: Tensor = self.norm(rows_NTD)
        return normalised_NTD


def feed_forward(size: int, inner_size: int, dropout: float) -> nn.Sequential:
    """Two linear layers with a swish between."""
    layers = [nn.LayerNorm(size), nn.Linear(size, inner_size), nn.SiLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(inner_size, size), nn.Dropout(dropout))


class Convolution(nn.Module):
    """Over time within each channel, between two linear layers over the channels.

    The paper normalises over the batch behind it; here each row is by itself (LayerNorm), so what an utterance gives
    depends neither on others nor on padding, and learners share no statistics.
    """

    def __init__(self, size: int, kernel_size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.gate = nn.Sequential(nn.Linear(size, 2 * size), nn.GLU())
        self.edges = nn.ConstantPad1d((kernel_size // 2, (kernel_size - 1) // 2), 0.0)
        self.over_time = nn.Conv1d(size, size, kernel_size, groups=size)
        self.output = nn.Sequential(nn.LayerNorm(size), nn.SiLU(), nn.Linear(size, size), nn.Dropout(dropout))

    def forward(self, rows_NTD: Tensor, is_padding_NT: Tensor) -> Tensor:
        """The same shape."""
        gated_NTD = self.gate(self.norm(rows_NTD)).masked_fill(is_padding_NT[:, :, None], 0.0)
        seen_NTD: Tensor = self.output(self.over_time(self.edges(gated_NTD.transpose(1, 2))).transpose(1, 2))
        return seen_NTD
