"""Bidirectional LSTM over stacked frames.

Letters in names: N utterances, T frames, F features of a frame, C channels of a layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from asrtool.models.acoustic import Encoder
from asrtool.models.settings import Lstm


class BiLstm(Encoder):
    """Frames are stacked and pass `num_layers` bidirectional LSTM layers.

    The output of each layer is normalised (Ba et al., 2016): without it CTC spends the first epochs on blanks alone.
    """

    def __init__(self, settings: Lstm, num_features: int) -> None:
        super().__init__()
        self.subsampling = settings.stack_frames
        self.output_size = 2 * settings.hidden_size
        widths = [settings.stack_frames * num_features] + [self.output_size] * (settings.num_layers - 1)
        self.layers = nn.ModuleList(BiLstmLayer(width, settings.hidden_size) for width in widths)
        self.norms = nn.ModuleList(nn.LayerNorm(self.output_size) for _ in widths)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """As Encoder.forward."""
        num_frames = feats_NTF.shape[1]
        frame_T = torch.arange(num_frames, device=feats_NTF.device)
        feats_NTF = feats_NTF.masked_fill(frame_T[None, :, None] >= feat_lens_N[:, None, None], 0.0)
        lens_N = self.output_lens(feat_lens_N)
        hidden_TNC = self._stack(feats_NTF).transpose(0, 1)
        backward_TN = _backward(lens_N, hidden_TNC.shape[0])
        for layer, norm in zip(self.layers, self.norms, strict=True):
            hidden_TNC = self.dropout(norm(layer(hidden_TNC, backward_TN)))
        return hidden_TNC.transpose(0, 1), lens_N

    def _stack(self, feats_NTF: Tensor) -> Tensor:
        num_utterances, num_frames, num_features = feats_NTF.shape
        missing = -num_frames % self.subsampling
        feats_NTF = nn.functional.pad(feats_NTF, (0, 0, 0, missing))
        return feats_NTF.reshape(num_utterances, -1, self.subsampling * num_features)


class BiLstmLayer(nn.Module):
    """One LSTM in each direction, their outputs side by side.

    The backward one reads every utterance from its own last frame, as a packed sequence would; but packed sequences
    miss the fused kernels of the CPU and take about 2.5 times as long.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.forward_lstm = nn.LSTM(input_size, hidden_size)
        self.backward_lstm = nn.LSTM(input_size, hidden_size)

    def forward(self, hidden_TNC: Tensor, backward_TN: Tensor) -> Tensor:
        """(T, N, input_size) to (T, N, 2 hidden_size); `backward_TN` is the frame to read instead of each frame."""
        column_N = torch.arange(hidden_TNC.shape[1], device=hidden_TNC.device)
        ahead_TNC, _ = self.forward_lstm(hidden_TNC)
        back_TNC, _ = self.backward_lstm(hidden_TNC[backward_TN, column_N])
        return torch.cat([ahead_TNC, back_TNC[backward_TN, column_N]], dim=-1)


def _backward(lens_N: Tensor, num_frames: int) -> Tensor:
    """(T, N): the frames of each utterance in reverse order, then its padding as it is."""
    frame_T1 = torch.arange(num_frames, device=lens_N.device)[:, None]
    return torch.where(frame_T1 < lens_N, lens_N - 1 - frame_T1, frame_T1)
