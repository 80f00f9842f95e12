"""Layers, batch and epochs that are left to the data."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainings import summary, toy_job

from asrtool.models.acoustic import load_model
from asrtool.settings.config import Config
from asrtool.settings.toml_files import load_config
from asrtool.train.average import average_checkpoints
from asrtool.train.derived_settings import BATCH_S, EPOCHS, MOST_LAYERS, fit
from asrtool.train.run import start

LEFT = ("model.lstm.num_layers=0", "train.batch_s=0", "train.num_epochs=0")
MINUTE_S, HOUR_S = 60.0, 3600.0


def sizes(config: Config) -> tuple[int, float, int]:
    return config.model.encoder.settings.num_layers, config.train.batch_s, config.train.num_epochs


@given(st.floats(1, 1e8), st.floats(1, 1e8), st.floats(0.1, 300))
def test_more_speech_has_more_layers_larger_batches_and_fewer_epochs(a_s: float, b_s: float, longest_s: float) -> None:
    config = load_config(overrides=LEFT)
    (less, _), (more, _) = (fit(config, total_s, longest_s) for total_s in sorted((a_s, b_s)))
    assert sizes(less)[0] <= sizes(more)[0] <= MOST_LAYERS
    assert max(BATCH_S[0], longest_s) <= less.train.batch_s <= more.train.batch_s < max(BATCH_S[1], longest_s) + 1
    assert EPOCHS[1] >= less.train.num_epochs >= more.train.num_epochs >= EPOCHS[0]


def test_what_is_given_stays_and_each_choice_is_said_with_its_reason() -> None:
    given = ["model.lstm.num_layers=7", "train.batch_s=33", "train.num_epochs=2"]
    config = load_config(overrides=given)
    assert fit(config, HOUR_S) == (config, [])
    for number, given_too in enumerate(given):
        fitted, lines = fit(load_config(overrides=[*LEFT, given_too]), HOUR_S)
        assert sizes(fitted)[number] == sizes(config)[number]
        assert len(lines) == 2
    _, lines = fit(load_config(overrides=LEFT), 3 * HOUR_S)
    assert [line.partition(" is 0: ")[0] for line in lines] == [key.removesuffix("=0") for key in LEFT]
    assert all("3 h" in line for line in lines[:2])
    assert "batches" in lines[2]


def test_the_batch_of_all_learners_counts_where_it_is_given() -> None:
    small, large = (
        fit(load_config(overrides=[*LEFT, f"distributed.global_batch_s={batch_s}"]), 20 * HOUR_S)[0]
        for batch_s in (100, 800)
    )
    assert small.train.num_epochs < large.train.num_epochs


def test_an_encoder_of_ones_own_need_not_have_layers() -> None:
    config = load_config(overrides=["train.num_epochs=0"])
    encoder = dataclasses.replace(config.model.encoder, settings=object())
    fitted, lines = fit(dataclasses.replace(config, model=dataclasses.replace(config.model, encoder=encoder)), HOUR_S)
    assert fitted.train.num_epochs
    assert len(lines) == 1


def test_a_training_is_begun_with_the_numbers_chosen(
    toy: Path, toy_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("asrtool.train.derived_settings.EPOCHS", (1, 2))
    with caplog.at_level("INFO"):
        start(toy_job(toy, tmp_path / "train", toy_config, LEFT))
    assert "model.lstm.num_layers is 0: 2 layers, for " in caplog.text
    inputs = json.loads((tmp_path / "train/inputs.json").read_text())["settings"]
    assert inputs["train"]["batch_s"] == BATCH_S[0]
    assert summary(tmp_path / "train")["num_epochs"] == inputs["train"]["num_epochs"] == 2
    average_checkpoints(tmp_path / "train", tmp_path / "model.pt", "last", 1)
    _, info = load_model(tmp_path / "model.pt")
    assert info["model"]["lstm"]["num_layers"] == 2
