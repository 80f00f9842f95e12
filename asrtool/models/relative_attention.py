"""Self-attention by content and by distance (Dai et al. 2019, arXiv 1901.02860, section 3.3).

The score of row j for row i is, with a key k for the content of j and a key r for the distance i - j,

    ((q_i + u) k_j + (q_i + v) r_{i-j}) / sqrt(E)

Letters in names: N utterances, T rows, P distances, D values of a row, H heads, E values of a head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class RelativeAttention(nn.Module):
    """Multi-head attention of the rows of an utterance to one another."""

    def __init__(self, size: int, num_heads: int, dropout: float) -> None:
        """`num_heads` divides `size`."""
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.output = (nn.Linear(size, size) for _ in range(4))
        self.distance = nn.Linear(size, size, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, 1, size // num_heads))  # u
        self.distance_bias = nn.Parameter(torch.zeros(num_heads, 1, size // num_heads))  # v
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows_NTD: Tensor, distances_PD: Tensor, is_padding_NT: Tensor) -> Tensor:
        """The same shape; `distances_PD` are `distances` of T. Rows of padding are not attended to."""
        query_NHTE, key_NHTE, value_NHTE = (
            self._split(projection(rows_NTD)) for projection in (self.query, self.key, self.value)
        )
        key_HPE = self._split(self.distance(distances_PD)[None])[0]
        by_content_NHTT = (query_NHTE + self.content_bias) @ key_NHTE.transpose(2, 3)
        by_distance_NHTP = (query_NHTE + self.distance_bias) @ key_HPE.transpose(1, 2)
        scores_NHTT = (by_content_NHTT + of_pairs(by_distance_NHTP)) / math.sqrt(query_NHTE.shape[3])
        weights_NHTT = scores_NHTT.masked_fill(is_padding_NT[:, None, None], -math.inf).softmax(3)
        attended_NHTE = self.dropout(weights_NHTT) @ value_NHTE
        attended_NTD: Tensor = self.output(attended_NHTE.transpose(1, 2).flatten(2))
        return attended_NTD

    def _split(self, rows_NTD: Tensor) -> Tensor:
        # Of unflatten, an ONNX graph keeps the number of rows that it was traced with
        return rows_NTD.view(*rows_NTD.shape[:2], self.num_heads, -1).transpose(1, 2)


def of_pairs(by_distance_NHTP: Tensor) -> Tensor:
    """(N, H, T, T): for rows i and j the value of i for the distance i - j; P are T - 1, T - 2, ... 1 - T."""
    num_rows = by_distance_NHTP.shape[2]
    row_T = torch.arange(num_rows, device=by_distance_NHTP.device)
    place_TT = num_rows - 1 - row_T[:, None] + row_T
    return by_distance_NHTP.gather(3, place_TT.expand(*by_distance_NHTP.shape[:2], -1, -1))


def distances(num_rows: int, like: Tensor) -> Tensor:
    """(P, D), of the type and on the device of `like`, whose last axis is D: the distances T - 1 to 1 - T as sines and
    cosines (Vaswani et al. 2017, section 3.5)."""
    size = like.shape[-1]
    distance_P = torch.arange(num_rows - 1, -num_rows, -1, device=like.device, dtype=torch.float32)
    rate_d = torch.exp(torch.arange(0, size, 2, device=like.device) * (-math.log(10_000.0) / size))
    angle_Pd = distance_P[:, None] * rate_d
    return torch.stack([angle_Pd.sin(), angle_Pd.cos()], dim=2).flatten(1)[:, :size].to(like.dtype)
