"""Training that begins with a trained model; layers that stay as they are, under every strategy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from commands import run_command
from toy_task import SETTINGS, TOY_CONFIG, last_weights, make_texts
from trainings import components_of, run_training

from asrtool.data.storage.index import write_feature_settings
from asrtool.errors import AsrtoolError
from asrtool.lang.phones import write_phones
from asrtool.lang.tokenizer import train_tokenizer
from asrtool.models.acoustic import AcousticModel, load_model, save_model
from asrtool.models.files.file_info import read_info
from asrtool.settings.toml_files import load_config
from asrtool.train.finetune import freeze
from asrtool.train.train import build_components

NUM_PROCESSES = 2  # of learners


@pytest.fixture
def trained(toy: Path, toy_config: Path, tmp_path: Path) -> Path:
    """A model file whose weights are not those that the seed draws."""
    torch.manual_seed(7)
    components = components_of(toy, toy_config)
    save_model(tmp_path / "model.pt", components.model, components.info)
    return tmp_path / "model.pt"


def build(toy: Path, toy_config: Path, tokenizer: Path, *overrides: str) -> AcousticModel:
    torch.manual_seed(1)
    return build_components(toy / "features", tokenizer, load_config([toy_config], overrides)).model


def parts_kept(model: AcousticModel, path: Path) -> dict[str, bool]:
    """Return for encoder and objective if all weights are those of the file; AssertionError if only some are."""
    same: dict[str, set[bool]] = {}
    for name, weight in load_model(path)[0].state_dict().items():
        found = model.state_dict()[name]
        same.setdefault(name.split(".")[0], set()).add(weight.shape == found.shape and torch.equal(weight, found))
    assert all(len(found) == 1 for found in same.values()), same
    return {part: found == {True} for part, found in same.items()}


def test_training_begins_with_all_weights_of_the_model(toy: Path, toy_config: Path, trained: Path) -> None:
    model = build(toy, toy_config, toy / "tokenizer", f"train.init_model={trained}")
    assert parts_kept(model, trained) == {"encoder": True, "objective": True}


def test_of_other_tokens_it_takes_the_encoder_alone(toy, toy_config, trained, tmp_path, caplog) -> None:
    """There are as many tokens: an equal number does not mean equal tokens."""
    (tmp_path / "other.txt").write_text("\n".join(make_texts(60, seed=9)) + "\n", encoding="utf-8")
    train_tokenizer(tmp_path / "other.txt", tmp_path / "other", read_info(trained)["num_tokens"])
    with caplog.at_level("INFO"):
        model = build(toy, toy_config, tmp_path / "other", f"train.init_model={trained}")
    assert parts_kept(model, trained) == {"encoder": True, "objective": False}
    assert "objective anew: it has other tokens" in caplog.text


def test_phones_are_the_same_tokens_whatever_words_there_are(toy: Path, toy_config: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).write_text(f"zorbl{name}\n", encoding="utf-8")  # no word that the dictionary has
        write_phones(tmp_path / name, tmp_path / f"{name}-phones")
    torch.manual_seed(7)
    components = build_components(toy / "features", tmp_path / "one-phones", load_config([toy_config]))
    save_model(tmp_path / "model.pt", components.model, components.info)
    model = build(toy, toy_config, tmp_path / "other-phones", f"train.init_model={tmp_path / 'model.pt'}")
    assert parts_kept(model, tmp_path / "model.pt") == {"encoder": True, "objective": True}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.lstm.hidden_size=13"], r"encoder\.\S+ is \(.*\) here and \(.*\) there"),
        (["model.lstm.num_layers=1"], r"encoder\.layers\.1\.\S+ is not here and \(.*\) there; choose"),
        (["model.lstm.layer_norm=false"], r"encoder\.norms\.0\.weight is not here and \(24,\) there"),
    ],
)
def test_another_encoder_is_refused(toy, toy_config, trained, overrides: list[str], message: str) -> None:
    with pytest.raises(AsrtoolError, match=message):
        build(toy, toy_config, toy / "tokenizer", f"train.init_model={trained}", *overrides)


@pytest.mark.parametrize(("setting", "is_another"), [("residual=true", True), ("dropout=0.5", False)])
def test_an_encoder_that_makes_other_rows_of_the_same_weights_is_warned_of(
    toy, toy_config, trained, caplog, setting: str, is_another: bool
) -> None:
    model = build(toy, toy_config, toy / "tokenizer", f"train.init_model={trained}", f"model.lstm.{setting}")
    assert ("its weights make other rows with these settings of the encoder" in caplog.text) == is_another
    assert model.training


def test_other_features_are_refused_and_the_advice_leads_to_those_of_the_model(
    toy, toy_config, trained, tmp_path
) -> None:
    shutil.copytree(toy / "features", tmp_path / "features")
    described = json.loads((tmp_path / "features/features.json").read_text(encoding="utf-8"))
    no_effect = {"num_jobs": 3, "executor": "dask:node:8786", "resample": True}
    (tmp_path / "features/features.json").write_text(
        json.dumps({**described, "sampling_rate_hz": 16000, "frame_shift_ms": 12.5, **no_effect})
    )
    config = load_config([toy_config], [f"train.init_model={trained}"])
    what = r"features.sampling_rate_hz = 8000, features.frame_shift_ms = 10.0, these have 16000, 12.5"
    with pytest.raises(AsrtoolError, match=what) as error:
        build_components(tmp_path / "features", toy / "tokenizer", config)
    settings = "--set features.sampling_rate_hz=8000 --set features.frame_shift_ms=10.0"
    assert error.value.hint == f"compute the features again with {settings}"
    write_feature_settings(tmp_path / "features", SETTINGS)
    build_components(tmp_path / "features", toy / "tokenizer", config)


@pytest.mark.parametrize(
    ("patterns", "message"), [(["encodr.*"], "is the name of no parameter"), (["*"], "nothing is left to train")]
)
def test_patterns_that_freeze_nothing_or_all_are_refused(toy, toy_config, patterns: list[str], message: str) -> None:
    model = build(toy, toy_config, toy / "tokenizer")
    with pytest.raises(AsrtoolError, match=message):
        freeze(model, patterns)


@pytest.mark.parametrize("strategy", ["allreduce", "adpsgd-random", "ps-async"])
def test_frozen_layers_keep_their_bits_under_strategies_and_the_others_learn(
    strategy: str, toy, toy_config, tmp_path, learners
) -> None:
    before = build(toy, toy_config, toy / "tokenizer").state_dict()
    overrides = [f"distributed.strategy={strategy}", 'train.frozen=["encoder.*"]', "train.num_epochs=2"]
    learners.run(run_training, toy, toy_config, tmp_path / "train", overrides)
    after = last_weights(tmp_path / "train")
    assert list(after) == list(before)
    for name, weight in after.items():
        assert torch.equal(weight, before[name]) == name.startswith("encoder."), name


def test_the_command_takes_the_model_settings_of_the_file_and_what_is_set_wins(toy, trained, tmp_path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(TOY_CONFIG.replace("hidden_size = 12", "hidden_size = 99"), encoding="utf-8")
    words = [trained, toy / "features", toy / "tokenizer", tmp_path / "tuned", "--config", other]
    words += ["--freeze", "encoder.layers.0.*", "--set", "model.lstm.dropout=0.4", "--set", "train.num_epochs=1"]
    run_command("finetune", *words)
    inputs = json.loads((tmp_path / "tuned/inputs.json").read_text(encoding="utf-8"))
    model, training = inputs["settings"]["model"]["lstm"], inputs["settings"]["train"]
    assert (model["hidden_size"], model["dropout"]) == (12, 0.4)
    assert (training["init_model"], training["frozen"]) == (str(trained), ["encoder.layers.0.*"])
    assert "init_model" in inputs["sha256"]
    of_file = load_model(trained)[0].state_dict()
    for name, weight in last_weights(tmp_path / "tuned").items():
        assert torch.equal(weight, of_file[name]) == name.startswith("encoder.layers.0."), name
