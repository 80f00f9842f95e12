"""Settings that follow from others: of what is trained before the model that decodes, and by the size of the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trainings import components_of, summary, toy_job

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import build_model, load_model, save_model
from asrtool.settings.config import Config, check_conflicts
from asrtool.settings.toml_files import load_config
from asrtool.train.average import average_checkpoints
from asrtool.train.derived_settings import (
    BATCH_S,
    EPOCHS,
    MAX_LAYERS,
    aligner_settings,
    fit,
    hybrid_settings,
    init_from_hybrid,
    last_settings,
)
from asrtool.train.run import start


def config_of(objective: str, *overrides: str) -> Config:
    methods = "greedy" if objective == "ctc" else "graph"
    return load_config(overrides=[f"model.objective={objective}", f"decode.methods={methods}", *overrides])


def described(config: Config) -> tuple[str, int, float]:
    return config.model.objective.name, config.train.num_epochs, config.train.peak_lr


def test_sequence_training_has_epochs_and_a_rate_of_its_own_and_the_models_before_have_those_of_train() -> None:
    own = "train.num_epochs=4", "train.peak_lr=0.3"
    config = config_of("lf-mmi", *own, "model.lf-mmi.num_epochs=7", "model.lf-mmi.peak_lr_divisor=10")
    assert described(aligner_settings(config)) == ("ctc", 4, 0.3)
    assert described(hybrid_settings(config)) == ("frame-ce", 4, 0.3)
    assert described(last_settings(config)) == ("lf-mmi", 7, pytest.approx(0.03))
    assert described(last_settings(config_of("lf-mmi", *own))) == ("lf-mmi", 2, pytest.approx(0.05))
    for objective in ("ctc", "frame-ce"):
        assert last_settings(config_of(objective, *own)) == config_of(objective, *own)
    scaled = hybrid_settings(config_of("lf-mmi", "model.lf-mmi.prior_scale=0.3"))
    assert scaled.model.objective.settings.prior_scale == 0.3


@pytest.mark.parametrize(("encoder", "frames"), [("lstm", 3), ("deepspeech2", 2), ("conformer", 4)])
def test_pieces_of_no_whole_rows_are_refused_before_anything_is_trained(encoder: str, frames: int) -> None:
    config = config_of("frame-ce", f"model.encoder={encoder}", "model.frame-ce.piece_frames=23")
    what = f"a row of model.encoder {encoder} has {frames} frames, expected a multiple, as {23 // frames * frames}"
    with pytest.raises(AsrtoolError, match=what):
        check_conflicts(config)
    check_conflicts(config_of("frame-ce", f"model.encoder={encoder}", "model.frame-ce.piece_frames=24"))
    by_ctc = config_of("ctc", f"model.encoder={encoder}", f"model.{encoder}.num_layers=1").model
    assert build_model(by_ctc, 40, 5).encoder.subsampling == frames


def test_what_needs_no_alignment_aligns_by_itself_or_by_ctc() -> None:
    assert aligner_settings(config_of("ctc")) == config_of("ctc")
    methods = "decode.methods=transducer-greedy", "train.num_epochs=4"
    config = load_config(overrides=["model.objective=transducer", *methods])
    assert described(aligner_settings(config)) == ("ctc", 4, config.train.peak_lr)


def test_training_begins_with_the_hybrid_model_where_it_is_wanted_and_no_other_is_named() -> None:
    model = Path("start/model.pt")
    for objective, overrides, expected in (
        ("lf-mmi", (), "start/model.pt"),
        ("lf-mmi", ("train.init_model=/other.pt",), "/other.pt"),
        ("frame-ce", (), ""),
        ("ctc", (), ""),
    ):
        assert init_from_hybrid(config_of(objective, *overrides), model).train.init_model == expected


def test_all_weights_of_a_model_of_frames_are_those_that_sequence_training_begins_with(
    toy, toy_config, targets, tmp_path
) -> None:
    def build(*overrides: str) -> torch.nn.Module:
        components = components_of(toy, toy_config, *overrides, targets=targets)
        save_model(tmp_path / "model.pt", components.model, components.info)
        return components.model

    torch.manual_seed(5)
    trained = build("model.objective=frame-ce").state_dict()
    found = build("model.objective=lf-mmi", f"train.init_model={tmp_path / 'model.pt'}").state_dict()
    assert found.keys() == trained.keys()
    assert all(torch.equal(found[name], weight) for name, weight in trained.items())


LEFT = ("model.lstm.num_layers=0", "train.batch_s=0", "train.num_epochs=0")
MINUTE_S, HOUR_S = 60.0, 3600.0


def sizes(config: Config) -> tuple[int, float, int]:
    return config.model.encoder.settings.num_layers, config.train.batch_s, config.train.num_epochs


@given(st.floats(1, 1e8), st.floats(1, 1e8), st.floats(0.1, 300))
def test_more_speech_has_more_layers_larger_batches_and_fewer_epochs(a_s: float, b_s: float, longest_s: float) -> None:
    config = load_config(overrides=LEFT)
    (less, _), (more, _) = (fit(config, total_s, longest_s) for total_s in sorted((a_s, b_s)))
    assert sizes(less)[0] <= sizes(more)[0] <= MAX_LAYERS
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


def test_a_training_is_begun_with_the_numbers_chosen(toy, toy_config, tmp_path, monkeypatch, caplog) -> None:
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
