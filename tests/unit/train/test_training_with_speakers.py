"""Training on features with vectors of speakers: the model gets them, and says so."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from toy_task import NUM_BINS, SETTINGS, assert_same_bits, last_weights

from asrtool.data.storage.index import EXTRACTOR, VECTORS, read_index, write_feature_settings
from asrtool.decode.forward import load_acoustic_model, open_features
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import save_model
from asrtool.settings.toml_files import load_config
from asrtool.train.finetune import begin_with
from asrtool.train.run import train
from asrtool.train.train import acoustic_job, build_components

SIZE = 5


@pytest.fixture
def features(toy: Path, tmp_path: Path) -> Path:
    """Those of the toy task with vectors."""
    folder = tmp_path / "features"
    shutil.copytree(toy / "features", folder)
    random = np.random.default_rng(2)
    for name in ("train", "dev"):
        vectors_UR = random.standard_normal((len(read_index(folder / name)), SIZE)).astype(np.float32)
        np.save(folder / name / VECTORS, vectors_UR)
    (folder / EXTRACTOR).write_bytes(b"an extractor")
    write_feature_settings(folder, dataclasses.replace(SETTINGS, speaker_vector=SIZE))
    return folder


def test_a_model_is_trained_on_frames_and_vectors(features: Path, toy: Path, toy_config: Path, tmp_path: Path) -> None:
    for name, processes in (("here", 0), ("beside", 1)):
        settings = [f"train.loader_processes={processes}", "train.num_epochs=1"]
        config = load_config([toy_config], settings)
        train(acoustic_job(features, toy / "tokenizer", tmp_path / name, config))
    weights = last_weights(tmp_path / "here")
    assert weights["encoder.layers.0.forward_lstm.weight_ih_l0"].shape[1] == 2 * (NUM_BINS + SIZE)
    assert_same_bits(weights, last_weights(tmp_path / "beside"))


def test_a_model_file_says_what_of_a_frame_is_the_speaker(
    features: Path, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    config = load_config([toy_config], ["model.deltas=1"])
    components = build_components(features, toy / "tokenizer", config)
    save_model(tmp_path / "model.pt", components.model, components.info)
    loaded = load_acoustic_model(tmp_path / "model.pt")
    assert loaded.model.speaker_vector == SIZE
    assert loaded.info["num_features"] == NUM_BINS + SIZE
    reader = open_features(features / "dev", loaded)
    assert reader.num_inputs == NUM_BINS + SIZE
    (features / EXTRACTOR).write_bytes(b"another one")
    with pytest.raises(AsrtoolError, match=r"dev: speaker vectors of another extractor than those that .*model.pt was"):
        open_features(features / "dev", loaded)
    others = build_components(features, toy / "tokenizer", config)
    with pytest.raises(AsrtoolError, match=r"model.pt: trained on speaker vectors of another extractor than these"):
        begin_with(others.model, tmp_path / "model.pt", others.info)
    (features / "dev" / VECTORS).unlink()
    what = f"{NUM_BINS} features a frame, but .*model.pt was trained on {NUM_BINS + SIZE}"
    with pytest.raises(AsrtoolError, match=what):
        open_features(features / "dev", loaded)


def test_other_vectors_are_another_training(features: Path, toy: Path, toy_config: Path, tmp_path: Path) -> None:
    config = load_config([toy_config], ["train.num_epochs=1"])
    train(acoustic_job(features, toy / "tokenizer", tmp_path / "train", config))
    path = features / "train" / VECTORS
    np.save(path, np.load(path) + 1)
    train(acoustic_job(features, toy / "tokenizer", tmp_path / "train", config))
    assert (tmp_path / "train.old-1").exists()


@pytest.mark.parametrize("consistency", [0.0, 0.2])
def test_noise_comes_before_the_masks_and_not_on_vectors(
    features: Path, toy: Path, toy_config: Path, consistency: float
) -> None:
    masks = ["specaugment.num_time_masks=2", "specaugment.max_time_frames=9", "specaugment.max_time_fraction=0.9"]
    settings = ["train.sequence_noise=1", f"model.ctc.consistency={consistency}", *masks]
    components = build_components(features, toy / "tokenizer", load_config([toy_config], settings))
    batch = components.train_set.read(next(iter(components.train_set.plan(0, 0, {}))))
    before_NTF = batch.inputs_NT.copy()
    assert components.augment
    components.augment(batch, np.random.default_rng(4))
    views = [batch.inputs_NT] if batch.others_NT is None else [batch.inputs_NT, batch.others_NT]
    assert len(views) == (2 if consistency else 1)
    for view_NTF in views:
        assert (view_NTF[:, :, NUM_BINS:] == before_NTF[:, :, NUM_BINS:]).all()
        assert (view_NTF[:, :, :NUM_BINS] > before_NTF[:, :, :NUM_BINS] + 0.1).any()
        spoken_NT = before_NTF[:, :, :NUM_BINS].any(axis=2)
        assert (spoken_NT & ~view_NTF[:, :, :NUM_BINS].any(axis=2)).sum() > 5  # masked frames are all 0
