"""Differences over time beside the features, as Kaldi's add-deltas computes them.

Of the frames f the first order is

    d(t) = sum over n = -2 ... 2 of n f(t + n) / 10

(the regression of the HTK book, section 5.9, over a window of 2), the second the same weights applied twice. Before the
first and after the last frame of an utterance these are repeated.

Letters in names: N utterances, T frames, F features of a frame.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

WINDOW = 2
FIRST = [n / 10 for n in range(-WINDOW, WINDOW + 1)]  # 10 is the sum of n squared


def add_deltas(feats_NTF: Tensor, lens_N: Tensor, orders: int) -> Tensor:
    """Append deltas: (N, T, F) to (N, T, (1 + orders) F)."""
    reach = orders * WINDOW
    frame_T = torch.arange(-reach, feats_NTF.shape[1] + reach, device=feats_NTF.device)
    last_N1 = (lens_N[:, None] - 1).clamp(min=0)
    place_NT = torch.minimum(frame_T.clamp(min=0), last_N1)
    wide_NTF = feats_NTF.gather(1, place_NT[:, :, None].expand(-1, -1, feats_NTF.shape[2]))
    all_orders, weights = [feats_NTF], [1.0]
    for _ in range(orders):
        weights = np.convolve(weights, FIRST).tolist()
        all_orders.append(_weigh(wide_NTF, weights, feats_NTF.shape[1]))
    return torch.cat(all_orders, dim=2)


def _weigh(wide_NTF: Tensor, weights: list[float], num_frames: int) -> Tensor:
    """Return weighted sums of as many neighbours on either side of each frame."""
    first = (wide_NTF.shape[1] - num_frames - len(weights) + 1) // 2
    parts = (weight * wide_NTF[:, first + n : first + n + num_frames] for n, weight in enumerate(weights))
    return torch.stack(list(parts)).sum(0)
