"""LSTM layers over rows of a few frames.

Letters in names: N utterances, T frames, F features of a frame, C channels of a layer.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from asrtool.models.acoustic import Encoder
from asrtool.models.encoders.stages import Part, run_parts
from asrtool.models.encoders.subsampling import ConvSubsampling, is_padding
from asrtool.settings.models import Lstm


class LstmEncoder(Encoder):
    """LSTM layers over rows of a few frames, then an optional linear layer.

    Frames are stacked, or pass two convolutions. Outputs of these and of each layer are normalised (Ba et al., 2016):
    without it CTC spends the first epochs on blanks alone.
    """

    def __init__(self, settings: Lstm, num_features: int) -> None:
        super().__init__()
        self.subsampling = settings.frames_a_row
        width = (settings.projection_size or settings.hidden_size) * (2 if settings.bidirectional else 1)
        self.rows: ConvSubsampling | None = None
        num_inputs = settings.stack_frames * num_features
        if settings.conv_channels:
            num_inputs = settings.hidden_size
            self.rows = ConvSubsampling(num_features, settings.conv_channels, num_inputs, settings.stack_frames)
        self.rows_norm = nn.LayerNorm(num_inputs) if self.rows and settings.layer_norm else nn.Identity()
        widths = [num_inputs] + [width] * (settings.num_layers - 1)
        self.residual = settings.residual
        self.layers = nn.ModuleList(LstmLayer(input_size, settings) for input_size in widths)
        self.norms = nn.ModuleList(nn.LayerNorm(width) if settings.layer_norm else nn.Identity() for _ in widths)
        self.dropout = SequenceDropout(settings.dropout) if settings.sequence_dropout else nn.Dropout(settings.dropout)
        self.bottleneck = nn.Linear(width, settings.bottleneck_size) if settings.bottleneck_size else nn.Identity()
        self.output_size = settings.bottleneck_size or width
        self.streams = not (settings.bidirectional or settings.conv_channels)

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """Encode features, as Encoder.forward."""
        hidden_NTC, lens_N = run_parts(self.parts(), feats_NTF, feat_lens_N)
        return hidden_NTC, lens_N

    def parts(self) -> Sequence[Part]:
        """Return the part that makes rows of frames, then the layers."""
        layers = [
            Part(functools.partial(self._apply_layer, layer, norm), layer, norm)
            for layer, norm in zip(self.layers, self.norms, strict=True)
        ]
        row_modules = [] if self.rows is None else [self.rows, self.rows_norm]
        return [Part(self._begin, *row_modules), *layers, Part(self._end, self.bottleneck)]

    def stream(self, feats_NTF: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Encode the next frames, as Encoder.stream; the state has one of each layer."""
        hidden_TNC, states = self._stack(feats_NTF).transpose(0, 1), []
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            assert isinstance(layer, LstmLayer)
            output_TNC, layer_state = layer.forward_lstm(hidden_TNC, state[i] if state else None)
            output_TNC = norm(output_TNC)
            hidden_TNC = hidden_TNC + output_TNC if self.residual and i else output_TNC
            states.append(layer_state)
        return self.bottleneck(hidden_TNC).transpose(0, 1), states

    def _begin(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lens_N = self.output_lens(feat_lens_N)
        if self.rows is None:
            hidden_NTC = self._stack(feats_NTF.masked_fill(is_padding(feat_lens_N, feats_NTF.shape[1])[..., None], 0.0))
        else:
            hidden_NTC = self.rows_norm(self.rows(feats_NTF, feat_lens_N))
        hidden_TNC = hidden_NTC.transpose(0, 1)
        return hidden_TNC, lens_N, backward_frames(lens_N, hidden_TNC.shape[0])

    def _apply_layer(
        self, layer: nn.Module, norm: nn.Module, hidden_TNC: Tensor, lens_N: Tensor, backward_TN: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        output_TNC = self.dropout(norm(layer(hidden_TNC, backward_TN)))
        if self.residual and layer is not self.layers[0]:
            output_TNC = hidden_TNC + output_TNC
        return output_TNC, lens_N, backward_TN

    def _end(self, hidden_TNC: Tensor, lens_N: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        return self.bottleneck(hidden_TNC).transpose(0, 1), lens_N

    def _stack(self, feats_NTF: Tensor) -> Tensor:
        num_utterances, num_frames, num_features = feats_NTF.shape
        missing = -num_frames % self.subsampling
        feats_NTF = nn.functional.pad(feats_NTF, (0, 0, 0, missing))
        return feats_NTF.reshape(num_utterances, -1, self.subsampling * num_features)


class LstmLayer(nn.Module):
    """One LSTM, or one in each direction with their outputs side by side.

    The backward one reads every utterance from its own last frame, as a packed sequence would; but packed sequences
    miss the fused kernels of the CPU and take about 2.5 times as long.
    """

    def __init__(self, input_size: int, settings: Lstm) -> None:
        super().__init__()
        self.weight_drop = settings.weight_drop
        self.forward_lstm = nn.LSTM(input_size, settings.hidden_size, proj_size=settings.projection_size)
        self.backward_lstm: nn.LSTM | None = None
        if settings.bidirectional:
            self.backward_lstm = nn.LSTM(input_size, settings.hidden_size, proj_size=settings.projection_size)

    def forward(self, hidden_TNC: Tensor, backward_TN: Tensor) -> Tensor:
        """Map (T, N, input_size) to (T, N, C).

        `backward_TN` is the frame that the backward LSTM reads in place of each.
        """
        ahead_TNC = self._apply_lstm(self.forward_lstm, hidden_TNC)
        if self.backward_lstm is None:
            return ahead_TNC
        column_N = torch.arange(hidden_TNC.shape[1], device=hidden_TNC.device)
        back_TNC = self._apply_lstm(self.backward_lstm, hidden_TNC[backward_TN, column_N])
        return torch.cat([ahead_TNC, back_TNC[backward_TN, column_N]], dim=-1)

    def _apply_lstm(self, lstm: nn.LSTM, hidden_TNC: Tensor) -> Tensor:
        if not (self.training and self.weight_drop):
            output_TNC: Tensor = lstm(hidden_TNC)[0]
            return output_TNC
        return drop_weights(lstm, hidden_TNC, self.weight_drop)


def drop_weights(lstm: nn.LSTM, hidden_TNC: Tensor, fraction: float) -> Tensor:
    """Run a one-layer `lstm` with a fraction of its recurrent weights zeroed.

    Source: Merity et al. 2018. One mask serves all frames, and the other weights are scaled up. The call is the one
    of nn.LSTM, so fused kernels are used and parameters keep their names.
    """
    weights = [getattr(lstm, name) for name in lstm._flat_weights_names]
    weights[1] = nn.functional.dropout(weights[1], fraction)
    num_utterances = hidden_TNC.shape[1]
    state = hidden_TNC.new_zeros(1, num_utterances, lstm.proj_size or lstm.hidden_size)
    cells = hidden_TNC.new_zeros(1, num_utterances, lstm.hidden_size)
    output_TNC: Tensor = torch._VF.lstm(hidden_TNC, (state, cells), weights, True, 1, 0.0, True, False, False)[0]
    return output_TNC


class SequenceDropout(nn.Module):
    """Dropout with one mask for all frames of an utterance (Gal and Ghahramani 2016)."""

    def __init__(self, fraction: float) -> None:
        super().__init__()
        self.fraction = fraction

    def forward(self, hidden_TNC: Tensor) -> Tensor:
        """Return the same shape."""
        return hidden_TNC * nn.functional.dropout(torch.ones_like(hidden_TNC[:1]), self.fraction, self.training)


def backward_frames(lens_N: Tensor, num_frames: int) -> Tensor:
    """Return (T, N): frames of each utterance in reverse, then its padding."""
    frame_T1 = torch.arange(num_frames, device=lens_N.device)[:, None]
    return torch.where(frame_T1 < lens_N, lens_N - 1 - frame_T1, frame_T1)
