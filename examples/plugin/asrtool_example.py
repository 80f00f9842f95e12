"""Plugin of asrtool: a recurrent encoder, and the curves of a training for Weights & Biases."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from asrtool.models.acoustic import Encoder


class Gru(Encoder):
    """Gated recurrent units over pairs of frames."""

    @dataclass(frozen=True)
    class Settings:
        """Keys of [model.Gru]."""

        num_layers: int = 3  # layers of both directions
        hidden_size: int = 256  # units of each direction

    def __init__(self, settings: Settings, num_features: int) -> None:
        super().__init__()
        self.subsampling, self.output_size = 2, 2 * settings.hidden_size
        sizes = 2 * num_features, settings.hidden_size, settings.num_layers
        self.gru = nn.GRU(*sizes, batch_first=True, bidirectional=True)

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        frame_T = torch.arange(feats_NTF.shape[1], device=feats_NTF.device)
        feats_NTF = feats_NTF.masked_fill((frame_T >= feat_lens_N[:, None])[:, :, None], 0.0)
        pairs_NTF = nn.functional.pad(feats_NTF, (0, 0, 0, feats_NTF.shape[1] % 2)).unflatten(1, (-1, 2)).flatten(2)
        lens_N = self.output_lens(feat_lens_N)
        packed = nn.utils.rnn.pack_padded_sequence(pairs_NTF, lens_N.cpu(), batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0], lens_N


class Wandb:
    """Run of Weights & Biases, which a resumed training continues."""

    @dataclass(frozen=True)
    class Settings:
        """Keys of [train.Wandb] and [nnlm.Wandb]."""

        project: str = "asrtool"  # in which the run appears

    def __init__(self, settings: Settings, out: Path, next_step: int | None) -> None:
        import wandb

        out = out.resolve()
        run_id = uuid.uuid5(uuid.NAMESPACE_URL, str(out)).hex
        self.run = wandb.init(project=settings.project, name=out.parent.name, id=run_id, dir=out, resume="allow")

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.run.log({tag: value}, step=step)

    def add_text(self, tag: str, text: str, step: int) -> None:
        self.run.config.update({tag: text}, allow_val_change=True)

    def close(self) -> None:
        self.run.finish()
