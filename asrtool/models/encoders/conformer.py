"""Conformer (Gulati et al. 2020, arXiv 2005.08100): attention and convolutions.

Letters in names: N utterances, T frames or rows, F features of a frame, D values of a row, P distances.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from asrtool.models.acoustic import Encoder
from asrtool.models.encoders.stages import Carry, Part, run_parts
from asrtool.models.encoders.subsampling import ConvSubsampling, is_padding
from asrtool.settings.models import Conformer as ConformerSettings


class RelativeAttention(nn.Module):
    """Multi-head attention of the rows of an utterance to one another."""

    def __init__(self, size: int, num_heads: int, dropout: float) -> None:
        """Take `num_heads`, a divisor of `size`."""
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.output = (nn.Linear(size, size) for _ in range(4))
        self.distance = nn.Linear(size, size, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, 1, size // num_heads))  # u
        self.distance_bias = nn.Parameter(torch.zeros(num_heads, 1, size // num_heads))  # v
        self.dropout = Dropout(dropout)

    def forward(self, rows_NTD: Tensor, distances_PD: Tensor, is_padding_NT: Tensor) -> Tensor:
        """Return rows of the same shape; `distances_PD` are `distances` of T.

        Padding is not attended to.
        """
        query_NHTE, key_NHTE, value_NHTE = (
            self._split(projection(rows_NTD)) for projection in (self.query, self.key, self.value)
        )
        key_HPE = self._split(self.distance(distances_PD)[None])[0]
        by_content_NHTT = (query_NHTE + self.content_bias) @ key_NHTE.transpose(2, 3)
        by_distance_NHTP = (query_NHTE + self.distance_bias) @ key_HPE.transpose(1, 2)
        scores_NHTT = (by_content_NHTT + by_pair(by_distance_NHTP)).div_(math.sqrt(query_NHTE.shape[3]))
        weights_NHTT = scores_NHTT.masked_fill_(is_padding_NT[:, None, None], -math.inf).softmax(3)
        attended_NHTE = self.dropout(weights_NHTT) @ value_NHTE
        attended_NTD: Tensor = self.output(attended_NHTE.transpose(1, 2).flatten(2))
        return attended_NTD

    def _split(self, rows_NTD: Tensor) -> Tensor:
        # With unflatten, an ONNX graph would keep the number of rows of its trace
        return rows_NTD.view(*rows_NTD.shape[:2], self.num_heads, -1).transpose(1, 2)


def by_pair(by_distance_NHTP: Tensor) -> Tensor:
    """Return (N, H, T, T): the value of row i for the distance i - j.

    P counts the distances T - 1, T - 2, ... 1 - T.
    """
    num_rows = by_distance_NHTP.shape[2]
    row_T = torch.arange(num_rows, device=by_distance_NHTP.device)
    place_TT = num_rows - 1 - row_T[:, None] + row_T
    return by_distance_NHTP.gather(3, place_TT.expand(*by_distance_NHTP.shape[:2], -1, -1))


def distances(num_rows: int, like: Tensor) -> Tensor:
    """Return the distances T - 1 to 1 - T as sines and cosines, (P, D).

    Source: Vaswani et al. 2017, section 3.5. Type, device and D are taken from `like`.
    """
    size = like.shape[-1]
    distance_P = torch.arange(num_rows - 1, -num_rows, -1, device=like.device, dtype=torch.float32)
    rate_d = torch.exp(torch.arange(0, size, 2, device=like.device) * (-math.log(10_000.0) / size))
    angle_Pd = distance_P[:, None] * rate_d
    return torch.stack([angle_Pd.sin(), angle_Pd.cos()], dim=2).flatten(1)[:, :size].to(like.dtype)


class Conformer(Encoder):
    """A row for every four frames passes `num_layers` blocks."""

    def __init__(self, settings: ConformerSettings, num_features: int) -> None:
        super().__init__()
        self.subsampling, self.output_size = settings.frames_a_row, settings.size
        self.frames = ConvSubsampling(num_features, settings.size, settings.size, self.subsampling)
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.num_layers))

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """Encode features, as Encoder.forward."""
        rows_NTD, lens_N = run_parts(self.parts(), feats_NTF, feat_lens_N)
        return rows_NTD, lens_N

    def parts(self) -> Sequence[Part]:
        """Return subsampling, blocks and the end."""
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
    """Half a feed-forward network, attention, convolution, the other half, residual."""

    def __init__(self, settings: ConformerSettings) -> None:
        super().__init__()
        size, dropout = settings.size, settings.dropout
        self.before, self.after = (feed_forward(size, settings.feed_forward_size, dropout) for _ in range(2))
        self.attention_norm = nn.LayerNorm(size)
        self.attention = RelativeAttention(size, settings.num_heads, dropout)
        self.convolution = Convolution(size, settings.kernel_size, dropout)
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(size)

    def forward(self, rows_NTD: Tensor, distances_PD: Tensor, is_padding_NT: Tensor) -> Tensor:
        """Return rows of the same shape."""
        rows_NTD = rows_NTD + 0.5 * self.before(rows_NTD)
        attended_NTD = self.attention(self.attention_norm(rows_NTD), distances_PD, is_padding_NT)
        rows_NTD = rows_NTD + self.dropout(attended_NTD)
        rows_NTD = rows_NTD + self.convolution(rows_NTD, is_padding_NT)
        rows_NTD = rows_NTD + 0.5 * self.after(rows_NTD)
        normalised_NTD: Tensor = self.norm(rows_NTD)
        return normalised_NTD


def feed_forward(size: int, inner_size: int, dropout: float) -> nn.Sequential:
    """Return two linear layers with a swish between."""
    layers = [nn.LayerNorm(size), nn.Linear(size, inner_size), nn.SiLU(), Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(inner_size, size), Dropout(dropout))


class Dropout(nn.Dropout):
    """nn.Dropout that takes less than half its time on the CPU.

    One draw of 64 bits decides on four values, so the fraction is rounded to a multiple of 2 ** -16.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the same shape and type."""
        if input.device.type != "cpu" or not self.training or self.p in (0, 1):
            return super().forward(input)
        num, num_dropped = input.numel(), round(self.p * 2**16)  # of values, and of the values of 16 bits
        drawn = torch.empty(-(-num // 4), dtype=torch.int64).random_(-(2**63), None)
        is_kept = drawn.view(torch.int16)[:num].view(input.shape) >= num_dropped - 2**15
        return input * is_kept.to(input.dtype).mul_(2**16 / (2**16 - num_dropped))


class Convolution(nn.Module):
    """Over time within each channel, between two linear layers over the channels.

    The paper normalises its output over the batch; here each row is by itself (LayerNorm), so what an utterance gives
    depends neither on others nor on padding, and learners share no statistics.
    """

    def __init__(self, size: int, kernel_size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.gate = nn.Sequential(nn.Linear(size, 2 * size), nn.GLU())
        self.edges = nn.ConstantPad1d((kernel_size // 2, (kernel_size - 1) // 2), 0.0)
        self.over_time = nn.Conv1d(size, size, kernel_size, groups=size)
        self.output = nn.Sequential(nn.LayerNorm(size), nn.SiLU(), nn.Linear(size, size), Dropout(dropout))

    def forward(self, rows_NTD: Tensor, is_padding_NT: Tensor) -> Tensor:
        """Return rows of the same shape."""
        gated_NTD = self.gate(self.norm(rows_NTD)).masked_fill(is_padding_NT[:, :, None], 0.0)
        seen_NTD: Tensor = self.output(self.over_time(self.edges(gated_NTD.transpose(1, 2))).transpose(1, 2))
        return seen_NTD
