"""Averages against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from toy_task import NUM_BINS, NUM_TOKENS
from trainings import summary

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import load_model
from asrtool.train.average import average_checkpoints

DEEP_SPEECH = ("model.encoder=deepspeech2", "model.deepspeech2.num_layers=1", "model.deepspeech2.hidden_size=8")


@pytest.mark.parametrize(("by", "num"), [("last", 3), ("best", 2), ("last", 9)])
def test_the_last_or_the_best_are_averaged_in_float64_and_too_few_of_them_are_reported(
    undisturbed, tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str, num: int
) -> None:
    """Statistics of batches as well; counters are those of the newest."""
    trained = undisturbed(*DEEP_SPEECH)
    saved = summary(trained)["checkpoints"]
    evaluated = sorted((entry for entry in saved if entry["dev_loss"] is not None), key=lambda entry: entry["dev_loss"])
    steps = [entry["step"] for entry in (saved[-num:] if by == "last" else evaluated[:num])]
    with caplog.at_level("INFO"):
        average_checkpoints(trained, tmp_path / "model.pt", by, num)
    few = f"averaging the {len(saved)} that are there, of 9 checkpoints wanted"
    assert (few in caplog.text) == (num == 9)
    paths = {step: trained / "checkpoints" / f"step-{step:08d}.pt" for step in steps}
    weights = {step: torch.load(path, weights_only=True)["weights"] for step, path in paths.items()}
    model, info = load_model(tmp_path / "model.pt")
    assert (info["features"]["cmvn"], info["features"]["sampling_rate_hz"]) == ("none", 8000)
    assert (info["num_features"], info["num_tokens"]) == (NUM_BINS, NUM_TOKENS)
    for name, weight in model.state_dict().items():
        mean = np.mean([weights[step][name].double().numpy() for step in steps], axis=0)
        newest = weights[max(steps)][name]
        expected = mean.astype(np.float32) if newest.is_floating_point() else newest.numpy()
        np.testing.assert_array_equal(weight.numpy(), expected, name)


def test_without_checkpoints_the_stage_to_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match="no checkpoint; run the train stage first"):
        average_checkpoints(tmp_path, tmp_path / "model.pt", "last", 3)
