"""CTC of two views: the mean of both losses, and a divergence whose targets get no gradient."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import Loss, build_model
from asrtool.models.objectives.ctc import Ctc, divergence_of_views
from asrtool.settings.config import check_conflicts
from asrtool.settings.models import Ctc as CtcSettings
from asrtool.settings.models import Model
from asrtool.settings.toml_files import load_config
from asrtool.train.train import acoustic_job

LENS_N = torch.tensor([6, 4])
TARGETS = (torch.tensor([[1, 2, 1], [2, 0, 0]]), torch.tensor([3, 1]))
NUM_TOKENS = 3


def objective_of(consistency: float) -> Ctc:
    torch.manual_seed(3)
    return Ctc(CtcSettings(consistency=consistency), 4, NUM_TOKENS).double()


def hidden(seed: int) -> Tensor:
    return torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_divergence_is_that_of_numpy_over_rows_that_are_there() -> None:
    scores_NTV = torch.randn(4, 6, NUM_TOKENS, dtype=torch.float64).log_softmax(-1)
    first, second = scores_NTV.numpy()[:2], scores_NTV.numpy()[2:]
    expected = 0.0
    for n, num_rows in enumerate(LENS_N.tolist()):
        p, q = np.exp(first[n, :num_rows]), np.exp(second[n, :num_rows])
        expected += float((p * np.log(p / q)).sum() + (q * np.log(q / p)).sum()) / 2
    assert divergence_of_views(scores_NTV, LENS_N).item() == pytest.approx(expected, rel=1e-12)


def test_each_view_is_drawn_to_the_other_as_it_stands() -> None:
    """The gradient of D(q || p) with respect to the logits of p is p - q; that of its target is none."""
    logits_NTV = torch.randn(2, 1, NUM_TOKENS, dtype=torch.float64, requires_grad=True)
    divergence_of_views(logits_NTV.log_softmax(-1), torch.tensor([1])).backward()
    p, q = logits_NTV.detach().softmax(-1)
    assert logits_NTV.grad is not None
    torch.testing.assert_close(logits_NTV.grad, torch.stack([p - q, q - p]) / 2, rtol=1e-12, atol=1e-15)


def test_the_loss_is_the_mean_of_both_and_the_weighted_divergence() -> None:
    objective = objective_of(0.7)
    both = torch.cat([hidden(1), hidden(2)])
    loss = objective.loss_of_views(both, LENS_N, *TARGETS)
    alone = [float(objective.loss(view, LENS_N, *TARGETS).total.detach()) for view in both.chunk(2)]
    divergence = float(divergence_of_views(objective.scores(both), LENS_N).detach())
    assert divergence > 0.01
    assert loss.figures == {"consistency": pytest.approx(divergence)}
    assert loss.normaliser == objective.loss(both[:2], LENS_N, *TARGETS).normaliser
    assert loss.total.item() == pytest.approx(sum(alone) / 2 + 0.7 * divergence, rel=1e-6)


class Doubled(Ctc):
    """A person's own."""

    def loss(self, *batch: Tensor) -> Loss:
        found = super().loss(*batch)
        return Loss(2 * found.total, found.normaliser, {"seen": 3.0})


def test_of_an_own_objective_its_own_loss_counts() -> None:
    objective = Doubled(CtcSettings(consistency=0.7), 4, NUM_TOKENS).double()
    both = torch.cat([hidden(1), hidden(2)])
    found = objective.loss_of_views(both, LENS_N, *TARGETS)
    by_ctc = [float(Ctc.loss(objective, view, LENS_N, *TARGETS).total.detach()) for view in both.chunk(2)]
    assert found.total.item() == pytest.approx(sum(by_ctc) + 0.7 * found.figures["consistency"], rel=1e-6)
    assert found.figures["seen"] == 3


def test_a_model_puts_the_second_views_behind_the_first() -> None:
    config = load_config([], ["model.ctc.consistency=0.5", "model.lstm.dropout=0", "model.lstm.hidden_size=8"])
    model = build_model(config.model, 5, NUM_TOKENS)
    feats_NTF, others_NTF = torch.randn(2, 18, 5), torch.randn(2, 18, 5)
    frames_N = torch.tensor([18, 12])
    loss = model.loss(feats_NTF, frames_N, *TARGETS, others_NTF)
    rows = [model.encoder(view, frames_N)[0] for view in (feats_NTF, others_NTF)]
    expected = model.objective.loss_of_views(torch.cat(rows), LENS_N, *TARGETS)
    torch.testing.assert_close(loss.total, expected.total)
    assert loss.figures["consistency"] > 0


def test_without_consistency_there_is_one_view() -> None:
    assert (objective_of(0.0).views, objective_of(0.1).views) == (1, 2)
    assert build_model(Model(), 5, NUM_TOKENS).objective.views == 1


def test_a_pipeline_of_devices_is_refused(tmp_path: Path) -> None:
    key = "model.ctc.consistency"
    config = load_config([], [f"{key}=0.2", "train.pipeline_stages=2"])
    for refuse in (check_conflicts, lambda config: acoustic_job(tmp_path, tmp_path, tmp_path, config)):
        with pytest.raises(AsrtoolError, match=rf"{key} and train\.pipeline_stages exclude each other"):
            refuse(config)
