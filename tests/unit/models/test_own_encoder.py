"""An encoder of a person's own that leaves out what is no method is refused in a line."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor, nn

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import Encoder, build_model
from asrtool.models.neural_lm import WordEncoder, build_neural_lm
from asrtool.models.settings import Model
from asrtool.settings import Choice


class NoSubsampling(Encoder):
    """Says how wide a row is, and not how many frames it stands for."""

    def __init__(self, settings: Any, num_features: int) -> None:
        super().__init__()
        self.output_size = num_features

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        return feats_NTF, feat_lens_N


class NoOutputSize(WordEncoder):
    def __init__(self, settings: Any, num_words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_words, 4)

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        return self.embedding(feats_NTF), feat_lens_N


def test_an_encoder_of_frames_says_how_many_a_row_stands_for() -> None:
    model = Model(encoder=Choice.of("encoder", f"{__name__}:NoSubsampling"))
    with pytest.raises(AsrtoolError, match="NoSubsampling: no encoder, it lacks subsampling; set it to a whole number"):
        build_model(model, num_features=3, num_tokens=4)


def test_an_encoder_of_words_says_how_wide_a_row_is() -> None:
    encoder = Choice.of("word-encoder", f"{__name__}:NoOutputSize")
    with pytest.raises(AsrtoolError, match="NoOutputSize: no encoder, it lacks output_size; set it to a whole number"):
        build_neural_lm(encoder, ["<unk>", "<s>", "yes"])
