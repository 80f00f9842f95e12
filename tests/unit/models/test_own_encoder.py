"""An encoder or objective of a person's own is refused in a line where it does not do what its protocol says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import Encoder, Loss, build_model
from asrtool.models.lm.neural_lm import WordEncoder, build_neural_lm
from asrtool.models.objectives.ctc import Ctc
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice


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
        build_neural_lm(encoder, Choice.of("word-output", "softmax"), ["<unk>", "<s>", "yes"])


class Thinning(Encoder):
    """Says that a row is one of two frames; makes every `stride`th frame a row, and so many `extra` ones."""

    stride, extra, width = 2, 0, 3

    def __init__(self, settings: Any, num_features: int) -> None:
        super().__init__()
        self.subsampling, self.output_size = 2, num_features

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        lens_N = torch.div(feat_lens_N + self.stride - 1, self.stride, rounding_mode="floor")
        rows_NTC = feats_NTF[:, :: self.stride, : self.width]
        return nn.functional.pad(rows_NTC, (0, 0, 0, self.extra)), lens_N


class EveryThird(Thinning):
    stride = 3


class Narrow(Thinning):
    width = 2


class Cut(Thinning):
    """Has fewer rows than it says."""

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        rows_NTC, lens_N = super().forward(feats_NTF, feat_lens_N)
        return rows_NTC[:, :-1], lens_N


class Padded(Thinning):
    """Has more rows than any utterance, which nobody reads."""

    extra = 2


class RowsAlone(Thinning):
    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> Any:
        return super().forward(feats_NTF, feat_lens_N)[0]


class Bare(Ctc):
    """Returns the sum alone."""

    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Any:
        return super().loss(hidden_NTC, lens_N, targets_NU, target_lens_N).total


class Unsummed(Ctc):
    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        return Loss(hidden_NTC[:, 0, 0], 1)


def loss_of(encoder: str = "Thinning", objective: str = "ctc") -> Loss:
    """Of two utterances, 7 and 4 frames long."""
    name = objective if objective == "ctc" else f"{__name__}:{objective}"
    model = Model(Choice.of("encoder", f"{__name__}:{encoder}"), Choice.of("objective", name))
    targets = torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1])
    return build_model(model, num_features=3, num_tokens=4).loss(torch.randn(2, 7, 3), torch.tensor([7, 4]), *targets)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("EveryThird", "made [3, 2] rows of [7, 4] frames, expected [4, 2] by its subsampling of 2; correct subsampli"),
        ("Narrow", "made rows of shape (2, 4, 2), expected (2, 4, 3); return (utterances, rows, output_size)"),
        ("Cut", "made rows of shape (2, 3, 3), expected (2, 4, 3); return"),
        ("RowsAlone", "returned Tensor, expected builtins:tuple; return one"),
    ],
)
def test_an_encoder_whose_rows_contradict_what_it_says_is_refused(encoder: str, message: str) -> None:
    with pytest.raises(AsrtoolError) as caught:
        loss_of(encoder)
    assert str(caught.value).startswith(f"{__name__}:{encoder} {message}")


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("Bare", "returned Tensor, expected asrtool.models.acoustic:Loss; return one"),
        ("Unsummed", "made a loss of shape (2,), expected a scalar tensor; sum it over the utterances"),
    ],
)
def test_an_objective_without_a_loss_of_the_batch_is_refused(objective: str, message: str) -> None:
    with pytest.raises(AsrtoolError) as caught:
        loss_of(objective=objective)
    assert str(caught.value).startswith(f"{__name__}:{objective} {message}")


def test_rows_behind_the_last_one_are_nobody_s_business() -> None:
    torch.manual_seed(1)
    loss = loss_of("Padded")
    torch.manual_seed(1)
    torch.testing.assert_close(loss.total, loss_of("Thinning").total)
