"""An encoder or objective of a person's own is refused in a line where it does not do what its protocol says."""

from __future__ import annotations

from collections.abc import Callable
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


class Silent(WordEncoder):
    """Encoder without the width and the number of frames of a row."""

    subsampling = None  # type: ignore[assignment]

    def __init__(self, settings: Any, num: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num, 4)

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        return self.embedding(feats_NTF), feat_lens_N


@pytest.mark.parametrize("lacking", ["subsampling", "output_size"])
def test_an_encoder_says_how_wide_a_row_is_and_how_many_frames_it_stands_for(
    lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking == "output_size":
        monkeypatch.setattr(Silent, "subsampling", 1)
    message = f"Silent: no encoder, it lacks {lacking}; set it to a whole number"
    with pytest.raises(AsrtoolError, match=message):
        build_model(Model(encoder=Choice.of("encoder", f"{__name__}:Silent")), num_features=3, num_tokens=4)
    encoder = Choice.of("word-encoder", f"{__name__}:Silent")
    with pytest.raises(AsrtoolError, match=message):
        build_neural_lm(encoder, Choice.of("word-output", "softmax"), ["<unk>", "<s>", "yes"])


class Thinning(Encoder):
    """Encoder that makes a row of two frames, and returns `changed` of the rows."""

    changed: Callable[[Tensor, Tensor], Any] = staticmethod(lambda rows_NTC, lens_N: (rows_NTC, lens_N))

    def __init__(self, settings: Any, num_features: int) -> None:
        super().__init__()
        self.subsampling, self.output_size = 2, num_features

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> Any:
        return self.changed(feats_NTF[:, ::2], self.output_lens(feat_lens_N))


class Returning(Ctc):
    """Objective that returns `changed` of its loss."""

    changed: Callable[[Loss], Any]

    def loss(self, *batch: Tensor) -> Any:
        return self.changed(super().loss(*batch))


def loss_of(objective: str = "ctc") -> Loss:
    """Return the loss of two utterances, 7 and 4 frames long."""
    torch.manual_seed(1)
    model = Model(Choice.of("encoder", f"{__name__}:Thinning"), Choice.of("objective", objective))
    targets = torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1])
    return build_model(model, num_features=3, num_tokens=4).loss(torch.randn(2, 7, 3), torch.tensor([7, 4]), *targets)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            lambda rows, lens: (rows, torch.tensor([3, 2])),
            "made [3, 2] rows of [7, 4] frames, expected [4, 2] by its subsampling of 2; correct subsampli",
        ),
        (
            lambda rows, lens: (rows[..., :2], lens),
            "made rows of shape (2, 4, 2), expected (2, 4, 3); return (utterances, rows, output_size)",
        ),
        (lambda rows, lens: (rows[:, :-1], lens), "made rows of shape (2, 3, 3), expected (2, 4, 3); return"),
        (lambda rows, lens: rows, "returned Tensor, expected builtins:tuple; return one"),
    ],
)
def test_an_encoder_whose_rows_contradict_what_it_says_is_refused(
    changed: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Thinning, "changed", staticmethod(changed))  # type: ignore[arg-type]
    with pytest.raises(AsrtoolError) as caught:
        loss_of()
    assert str(caught.value).startswith(f"{__name__}:Thinning {message}")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda loss: loss.total, "returned Tensor, expected asrtool.models.acoustic:Loss; return one"),
        (
            lambda loss: Loss(loss.total.expand(2), 1),
            "made a loss of shape (2,), expected a scalar tensor; sum it over the utterances",
        ),
    ],
)
def test_an_objective_without_a_loss_of_the_batch_is_refused(
    changed: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Returning, "changed", staticmethod(changed), raising=False)  # type: ignore[arg-type]
    with pytest.raises(AsrtoolError) as caught:
        loss_of(f"{__name__}:Returning")
    assert str(caught.value).startswith(f"{__name__}:Returning {message}")


def test_rows_behind_the_last_one_are_nobody_s_business(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = loss_of().total
    longer = staticmethod(lambda rows, lens: (nn.functional.pad(rows, (0, 0, 0, 2)), lens))
    monkeypatch.setattr(Thinning, "changed", longer)
    torch.testing.assert_close(loss_of().total, expected)
