"""What is trained before the model that decodes: by which settings, and from which weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from trainings import components_of

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import build_model, save_model
from asrtool.settings.config import Config, check_conflicts
from asrtool.settings.toml_files import load_config
from asrtool.train.derived_settings import aligner_settings, begin_with_hybrid, hybrid_settings, last_settings


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
        ("lf-mmi", ("train.init_model=other.pt",), "other.pt"),
        ("frame-ce", (), ""),
        ("ctc", (), ""),
    ):
        assert begin_with_hybrid(config_of(objective, *overrides), model).train.init_model == expected


def test_all_weights_of_a_model_of_frames_are_those_that_sequence_training_begins_with(
    toy: Path, toy_config: Path, targets: Path, tmp_path: Path
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
