"""Computation of the acoustic model: device, batches and scores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from made_up import MadeUpReader

from asrtool.data.storage.index import Utterance
from asrtool.decode import forward
from asrtool.decode.acoustic_model import Scored
from asrtool.decode.forward import apply_model, compute_scores
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import choose_device

LENS = (7, 3, 5)


class Reader(MadeUpReader):
    """Utterances whose features count upwards."""

    num_bins = 2
    index = tuple(Utterance(f"u{n}", "r", "A", 0.0, 0.1, "s", "", 0, length) for n, length in enumerate(LENS))

    def read(self, i: int) -> np.ndarray:
        return np.arange(2 * LENS[i], dtype=np.float32).reshape(-1, 2) + i


class Double(torch.nn.Module):
    """Twice the features, every row."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, feats_NTF: torch.Tensor, lens_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return feats_NTF * self.factor, lens_N


def scores_of(found: Iterator[Scored]) -> dict[str, np.ndarray]:
    return {scored.utterance.id: scored.scores_TV for scored in found}


class Elsewhere(torch.Tensor):
    """A tensor that stands for one on another device: only its own kind may be computed with it."""

    def numpy(self, *_: object, **__: object) -> np.ndarray:  # type: ignore[override]
        raise TypeError("still on the other device")

    def cpu(self, *_: object) -> torch.Tensor:  # type: ignore[override]
        return self.as_subclass(torch.Tensor)


def test_model_and_features_go_to_the_device_and_scores_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("meta")
    moved: list[torch.device] = []

    def to(self: torch.Tensor, target: torch.device) -> torch.Tensor:
        moved.append(target)
        return self.as_subclass(Elsewhere)

    class Watched(Double):
        def to(self, target: torch.device) -> Watched:  # type: ignore[override]
            moved.append(target)
            return self

        def forward(self, feats_NTF: torch.Tensor, lens_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            assert isinstance(feats_NTF, Elsewhere)
            assert isinstance(lens_N, Elsewhere)
            return super().forward(feats_NTF, lens_N)

    monkeypatch.setattr(forward, "choose_device", lambda: device)
    monkeypatch.setattr(torch.Tensor, "to", to)
    found = scores_of(compute_scores(Watched(), Reader(), max_frames=100))  # type: ignore[arg-type]
    assert moved == [device] * 3  # the model once, features and lengths of the one batch
    assert {type(scores_TV) for scores_TV in found.values()} == {np.ndarray}
    assert (found["u1"] == 2 * Reader().read(1)).all()


def test_a_gpu_is_taken_where_torch_sees_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for seen, kind in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda seen=seen: seen)
        assert choose_device().type == kind


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_a_gpu_gives_the_scores_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = scores_of(compute_scores(Double(), Reader(), max_frames=8))  # type: ignore[arg-type]
    monkeypatch.setattr(forward, "choose_device", lambda: torch.device("cpu"))
    for name, scores_TV in scores_of(compute_scores(Double(), Reader(), max_frames=8)).items():  # type: ignore[arg-type]
        np.testing.assert_allclose(on_gpu[name], scores_TV, rtol=1e-5)


class Limited(torch.nn.Module):
    """A row for every two frames; memory for 10 frames, padding included."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, feats_NTF: torch.Tensor, lens_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.shapes.append(tuple(feats_NTF.shape[:2]))
        if feats_NTF.shape[0] * feats_NTF.shape[1] > 10:
            raise RuntimeError("CUDA out of memory. Tried to allocate 1.00 GiB")
        return 3 * feats_NTF[:, ::2], (lens_N + 1) // 2


def test_a_batch_that_does_not_fit_memory_is_computed_in_halves(caplog: pytest.LogCaptureFixture) -> None:
    lens_N = np.array([2, 3, 9, 5, 4])
    feats_NTF = np.random.default_rng(1).random((5, 9, 2)).astype(np.float32)
    model = Limited()
    scores_NTV, lens = apply_model(model, feats_NTF, lens_N, torch.device("cpu"))
    assert lens == [1, 2, 5, 3, 2]
    assert scores_NTV.shape == (5, 5, 2)
    for n, length in enumerate(lens):
        np.testing.assert_array_equal(scores_NTV[n, :length], 3 * feats_NTF[n, ::2][:length])
    assert model.shapes == [(5, 9), (2, 3), (3, 9), (1, 9), (2, 5)]
    assert "5 utterances do not fit memory: computing them in halves (decode.batch_s)" in caplog.text


class Broken(torch.nn.Module):
    """Model with a sum of shapes that do not fit."""

    def forward(self, feats_NTF: torch.Tensor, lens_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return feats_NTF + torch.zeros(7), lens_N


def test_an_utterance_that_does_not_fit_memory_is_one_line_and_other_errors_stay_what_they_are() -> None:
    with pytest.raises(AsrtoolError, match="an utterance of 11 frames does not fit memory; free some"):
        apply_model(Limited(), np.zeros((1, 11, 2), np.float32), np.array([11]), torch.device("cpu"))
    with pytest.raises(RuntimeError, match="size of tensor"):
        apply_model(Broken(), np.zeros((2, 3, 2), np.float32), np.array([3, 3]), torch.device("cpu"))
