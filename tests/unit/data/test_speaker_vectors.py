"""Vectors of speakers beside the features of a set: of what was said before, and in every frame of a batch."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from asrtool.cli.data.features import features as features_command
from asrtool.data.batches import Batch, load_batch
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.features.ivectors import speaker_vectors
from asrtool.data.features.ivectors.extractor import Extractor
from asrtool.data.features.ivectors.speaker_vectors import extractor_digest, write_vectors
from asrtool.data.storage.index import EXTRACTOR, VECTORS, Utterance, write_index
from asrtool.data.storage.reader import FeatureReader
from asrtool.data.storage.shard import Shard, write_shard
from asrtool.data.storage.shard_offsets import Place
from asrtool.errors import AsrtoolError
from asrtool.files import mark_files
from asrtool.settings.config import check_conflicts
from asrtool.settings.data import Features
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config

SIZE = 7
WITHOUT = Features(type=Choice.of("features", "fbank", num_mel_bins=23), shard_cuts=12, num_jobs=1)
WITH = dataclasses.replace(WITHOUT, speaker_vector=SIZE)
SAID = [  # shard, speaker, frames
    (0, "ann", 40), (0, "bob", 30), (0, "ann", 25), (0, "ann", 50), (0, "bob", 60), (0, "ann", 10), (1, "ann", 20),
    (1, "ann", 33),
]  # fmt: skip


@pytest.fixture(scope="module")
def made(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The features of the small corpus with vectors; to be read only."""
    out = tmp_path_factory.mktemp("made") / "features"
    compute_features(corpus / "manifests", out, WITH)
    return out


def write_said(directory: Path) -> list[np.ndarray]:
    """A set of what is SAID; returns its features as they are stored."""
    directory.mkdir()
    random = np.random.default_rng(4)
    items = []
    for number, (shard, speaker, num_frames) in enumerate(SAID):
        name = f"{number}"
        feats_TF = random.standard_normal((num_frames, 23)).astype(np.float32)
        items.append((Utterance(name, name, "A", 0.0, num_frames / 100, speaker, "", shard, num_frames), feats_TF))
    for shard in range(2):
        write_shard(directory, shard, [item for item in items if item[0].shard == shard], WITHOUT)
    write_index(directory, [utterance for utterance, _ in items])
    shards = [Shard(directory, Place.of_own_files(shard)) for shard in range(2)]
    return [shards[0].read(i) for i in range(6)] + [shards[1].read(i) for i in range(2)]


@pytest.mark.parametrize("history", [3000, 60])
def test_a_vector_is_that_of_what_its_speaker_has_said_before(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: int
) -> None:
    monkeypatch.setattr(speaker_vectors, "HISTORY_FRAMES", history)
    feats = write_said(tmp_path / "set")
    extractor = Extractor.load(made / EXTRACTOR)
    write_vectors(tmp_path / "set", extractor, map)
    vectors_UR = np.load(tmp_path / "set" / VECTORS)
    before = {2: [0], 3: [0, 2], 4: [1], 5: [0, 2, 3] if history == 3000 else [2, 3], 7: [6]}
    assert vectors_UR.dtype == np.float32
    for number in range(len(SAID)):
        expected_R = np.zeros(SIZE)
        if heard := before.get(number):
            expected_R = extractor.vector(extractor.sums(np.concatenate([feats[one] for one in heard])))
            assert np.abs(expected_R).max() > 1e-3
        np.testing.assert_allclose(vectors_UR[number], expected_R, rtol=1e-4, atol=1e-6)


def test_every_set_has_vectors_of_the_extractor_of_the_training_set(made: Path) -> None:
    extractor = Extractor.load(made / EXTRACTOR)
    assert extractor.size == SIZE
    for name in ("train", "dev", "test"):
        reader = FeatureReader(made / name, "none")
        vectors_UR = np.load(made / name / VECTORS)
        assert vectors_UR.shape == (len(reader.index), SIZE)
        assert reader.num_inputs == 23 + SIZE
        heard: set[tuple[int, str]] = set()
        for number, utterance in enumerate(reader.index):
            assert vectors_UR[number].any() == ((utterance.shard, utterance.speaker) in heard)
            heard.add((utterance.shard, utterance.speaker))
        speaker = reader.index[0].speaker
        first, second = [n for n, utterance in enumerate(reader.index) if utterance.speaker == speaker][:2]
        expected_R = extractor.vector(extractor.sums(reader.read(first)))
        np.testing.assert_allclose(vectors_UR[second], expected_R, rtol=1e-4, atol=1e-6)


def test_vectors_do_not_depend_on_the_number_of_processes(made: Path, corpus: Path, tmp_path: Path) -> None:
    compute_features(corpus / "manifests", tmp_path / "features", dataclasses.replace(WITH, num_jobs=2))
    for name in ("train", "dev", "test"):
        assert (tmp_path / "features" / name / VECTORS).read_bytes() == (made / name / VECTORS).read_bytes()


def test_features_are_the_same_with_vectors_and_nothing_of_them_is_left_without(
    made: Path, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / EXTRACTOR).write_bytes(b"of an earlier run")
    mark_files(tmp_path / EXTRACTOR)
    compute_features(corpus / "manifests", tmp_path, WITHOUT)
    assert not (tmp_path / EXTRACTOR).exists()
    assert not list(tmp_path.rglob(VECTORS))
    one, other = (FeatureReader(folder / "dev", "speaker") for folder in (tmp_path, made))
    assert one.num_inputs == one.num_bins == other.num_bins
    assert all(np.array_equal(one.read(i), other.read(i)) for i in range(len(one.index)))


def test_a_vector_stands_behind_every_frame_of_its_utterance_and_no_padding(made: Path) -> None:
    reader = FeatureReader(made / "train", "speaker")
    assert reader.vectors is not None
    batch = load_batch(reader, Batch(0, [5, 2, 11]))
    assert batch.feats_NTF.shape[2] == 23 + SIZE
    for n, i in enumerate([5, 2, 11]):
        length = batch.feat_lens_N[n]
        np.testing.assert_array_equal(batch.feats_NTF[n, :length, :23], reader.read(i))
        np.testing.assert_array_equal(batch.feats_NTF[n, :length, 23:], np.tile(reader.vectors[i], (length, 1)))
        assert not batch.feats_NTF[n, length:].any()
    changed = [np.ones((4, 23), np.float32)]
    batch = load_batch(reader, Batch(0, [5]), feats=changed)
    np.testing.assert_array_equal(batch.feats_NTF[0, :, 23:], np.tile(reader.vectors[5], (4, 1)))


def test_a_broken_file_is_refused_in_a_line(made: Path, tmp_path: Path) -> None:
    for content, reason in ((b"nonsense", "no readable"), (None, "shape")):
        folder = tmp_path / reason.replace(" ", "")
        folder.mkdir()
        for file in (path for path in (made / "dev").iterdir() if path.is_file()):
            (folder / file.name).write_bytes(file.read_bytes())
        if content is None:
            np.save(folder / VECTORS, np.zeros((3, SIZE), np.float32))
        else:
            (folder / VECTORS).write_bytes(content)
        with pytest.raises(AsrtoolError, match=rf"{VECTORS}: no readable speaker vectors: .*run the features"):
            FeatureReader(folder, "none")


@pytest.mark.parametrize("setting", ["features.speaker_vector=100", "model.deltas=2"])
@pytest.mark.parametrize("encoder", ["conformer", "deepspeech2", "lstm"])
def test_encoders_that_convolve_over_bins_are_refused(encoder: str, setting: str) -> None:
    what = f"{setting.replace('=', ' is ')} but model.encoder {encoder} convolves over the bins of a frame"
    settings = [setting, f"model.encoder={encoder}"]
    with pytest.raises(AsrtoolError, match=what):
        check_conflicts(load_config([], [*settings, "model.lstm.conv_channels=8"]))
    if encoder == "lstm":
        check_conflicts(load_config([], settings))


def test_features_of_other_corpora_have_vectors_of_an_extractor_that_is_there(
    made: Path, corpus: Path, tmp_path: Path
) -> None:
    extractor = Extractor.load(made / EXTRACTOR)
    other = dataclasses.replace(extractor, loadings_CDR=2 * extractor.loadings_CDR)
    other.save(tmp_path / "other.npz")
    settings = ["--set", "features.num_jobs=1", "--set", "features.fbank.num_mel_bins=23"]
    command = [str(corpus / "manifests"), str(tmp_path / "out"), "--extractor", str(tmp_path / "other.npz"), *settings]
    done = CliRunner().invoke(features_command, [*command, "--set", "features.speaker_vector=3"])
    assert "an extractor of 7 values, but features.speaker_vector is 3" in str(done.exception)
    done = CliRunner().invoke(features_command, [*command, "--set", f"features.speaker_vector={SIZE}"])
    assert done.exit_code == 0, done.exception
    assert extractor_digest(tmp_path / "out") == hashlib.sha256((tmp_path / "other.npz").read_bytes()).hexdigest()
    one, others = (np.load(folder / "dev" / VECTORS) for folder in (made, tmp_path / "out"))
    assert one.shape == others.shape
    assert not np.allclose(one, others)
