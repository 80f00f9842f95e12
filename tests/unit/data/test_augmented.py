"""Samples kept beside features, and features of what they are changed to."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from lhotse import Fbank, FbankConfig
from tones import SMALL

from asrtool.data.augment.audio import Augmentation, AugmentedReader, EpochCopy, limit_band
from asrtool.data.features.cmvn import Cmvn, Moments
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.manifests.manifest import read_manifests
from asrtool.data.storage.index import read_feature_settings, read_index
from asrtool.data.storage.reader import FeatureReader, SampleReader
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Augment

KEPT = dataclasses.replace(SMALL, speeds=(1.0, 1.1), keep_audio=True)
NARROW = Augment(band_prob=1.0, band_hz=(1000.0, 2000.0))


@pytest.fixture(scope="module")
def kept(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of the corpus with its samples; to be read only."""
    out = tmp_path_factory.mktemp("kept")
    compute_features(corpus / "manifests", out, KEPT)
    return out


def reader_of(directory: Path, augment: Augment = NARROW, seed: int = 1, **changes: Any) -> AugmentedReader:
    features = dataclasses.replace(KEPT, **changes)
    return AugmentedReader(directory, features, Augmentation(augment, 8000), seed, read_index(directory))


def copy_of(directory: Path, i: int, epoch: int = 0, tempo: float = 1.0) -> EpochCopy:
    return EpochCopy(i, epoch, round(read_index(directory)[i].num_frames / tempo))


def test_samples_are_those_of_the_recording_in_sixteen_bits_and_give_the_stored_features(
    corpus: Path, kept: Path
) -> None:
    index = read_index(kept / "train")
    samples, stored = SampleReader(kept / "train", index, 8000), FeatureReader(kept / "train", "none")
    extractor = Fbank(FbankConfig(sampling_rate=8000, num_filters=23))
    paths = {r.id: r.sources[0].source for r in read_manifests(corpus / "manifests" / "train")[0]}
    for i in np.random.default_rng(0).permutation(len(index)).tolist():
        utterance = index[i]
        assert np.abs(extractor.extract(samples.read(i), 8000) - stored.read(i)).mean() < 1 / 32
        if utterance.id.startswith("sp"):
            assert len(samples.read(i)) == round(utterance.duration_s * 8000)
            continue
        audio, _ = soundfile.read(paths[utterance.recording], dtype="float32")
        begin = round(utterance.start_s * 8000)
        expected = audio[begin : begin + round(utterance.duration_s * 8000), "AB".index(utterance.channel)]
        np.testing.assert_array_equal(samples.read(i), expected)


def test_only_the_training_set_keeps_samples_and_only_where_it_is_to(corpus: Path, kept: Path) -> None:
    assert sorted(path.parent.name for path in kept.rglob("*.s16")) == ["train"]
    assert not list((corpus / "lilcom").rglob("*.s16"))
    assert read_feature_settings(kept).keep_audio


@pytest.mark.parametrize("damage", ["missing", "cut off", "empty"])
def test_samples_that_are_missing_or_cut_off_are_named(kept: Path, tmp_path: Path, damage: str) -> None:
    shutil.copytree(kept / "train", tmp_path / "train")
    path = tmp_path / "train" / "samples.000000.s16"
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[: len(content) // 2 if damage == "cut off" else 0])
    with pytest.raises(AsrtoolError, match=r"samples\.000000\.s16 .*; run the features stage again"):
        reader_of(tmp_path / "train").read(copy_of(tmp_path / "train", 13))


@pytest.mark.parametrize("cmvn", ["none", "utterance", "global", "speaker"])
def test_features_are_those_of_the_changed_samples_normalised(kept: Path, cmvn: str) -> None:
    directory = kept / "train"
    index = read_index(directory)
    random = np.random.default_rng((1, 3, 4, 1))
    random.random(3)  # whether there is reverberation, noise, a band
    low_hz, high_hz = random.uniform(0, 1000), random.uniform(2000, 4000)
    samples = limit_band(SampleReader(directory, index, 8000).read(4), low_hz, high_hz, 8000)
    extracted = Fbank(FbankConfig(sampling_rate=8000, num_filters=23)).extract(samples, 8000)
    speaker, stored_TF = index[4].speaker, FeatureReader(directory, "none").read(4)
    expected_TF = plain_TF = Cmvn(directory, cmvn).normalise(speaker, extracted)
    if cmvn == "speaker":
        expected_TF = Cmvn(directory, cmvn).normalise_changed(speaker, extracted, stored_TF)
        assert not np.allclose(expected_TF, plain_TF, atol=0.1)
    found_TF = reader_of(directory, cmvn=cmvn).read(copy_of(directory, 4, epoch=3))
    np.testing.assert_allclose(found_TF, expected_TF, atol=1e-4)


def test_by_speaker_a_copy_is_normalised_as_if_all_of_the_speaker_were_changed_alike(kept: Path) -> None:
    """A change that adds to all features of a speaker and stretches them has no effect then."""
    directory = kept / "train"
    stored, cmvn = FeatureReader(directory, "none"), Cmvn(directory, "speaker")
    shift_F, factor_F = np.linspace(-3, 5, 23, dtype=np.float32), np.linspace(0.5, 1.5, 23, dtype=np.float32)
    for i in (0, 7):
        feats_TF, speaker = stored.read(i), stored.index[i].speaker
        changed_TF = cmvn.normalise_changed(speaker, feats_TF * factor_F + shift_F, feats_TF)
        mean_F, std_F = Moments.of(feats_TF).mean_std()
        expected_TF = cmvn.normalise(speaker, feats_TF)
        # where the mean of an utterance is not that of its speaker, the factor stretches around its own
        of_speaker = cmvn._mean_std(speaker)
        around_F = (mean_F - of_speaker[0]) / of_speaker[1] * (1 - 1 / factor_F)
        np.testing.assert_allclose(changed_TF, expected_TF - around_F, atol=2e-4)
        assert (std_F > 0.1).all()
        np.testing.assert_array_equal(
            cmvn.normalise_changed("stranger", feats_TF, feats_TF * 2), cmvn.normalise("stranger", feats_TF)
        )


def test_each_epoch_has_features_of_its_own_and_the_same_ones_again(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = kept / "train"
    for seed in (1, 2):
        epochs = [reader_of(directory, seed=seed).read(copy_of(directory, 5, epoch)).tobytes() for epoch in range(6)]
        assert len(set(epochs)) == 6
        reader = reader_of(directory, seed=seed)
        again = [reader.read(copy_of(directory, 5, epoch)).tobytes() for epoch in reversed(range(6))]
        assert again[::-1] == epochs
    assert reader_of(directory, seed=1).read(copy_of(directory, 5)).tobytes() != epochs[0]
    drawn = []
    monkeypatch.setattr(
        Augmentation, "change", lambda _, samples, num, random: drawn.append(random.random()) or samples
    )
    for i in range(20):  # and each utterance of an epoch one of its own
        reader.read(copy_of(directory, i))
    assert len(set(drawn)) == 20


@pytest.mark.parametrize("tempo", [0.8, 0.97, 1.21])
def test_a_copy_at_another_tempo_has_the_frames_that_were_planned(kept: Path, tempo: float) -> None:
    """And what was said is at the same part of it."""
    directory = kept / "train"
    reader = reader_of(directory, Augment(tempo=(0.5, 2.0)), cmvn="none")
    stored = FeatureReader(directory, "none")
    for i in range(0, 24, 5):
        copy = copy_of(directory, i, tempo=tempo)
        found_TF, plain_TF = reader.read(copy), stored.read(i)
        assert found_TF.shape == (copy.num_frames, 23)
        assert found_TF.dtype == np.float32
        places = ((np.arange(len(found_TF)) + 0.5) * len(plain_TF) / len(found_TF)).astype(int)
        loud, expected = found_TF.max(axis=1), plain_TF[places].max(axis=1)
        assert np.corrcoef(loud, expected)[0, 1] > 0.8


def test_an_utterance_to_which_nothing_happens_has_its_stored_features(kept: Path) -> None:
    reader = reader_of(kept / "train", Augment(), cmvn="speaker")
    stored = FeatureReader(kept / "train", "speaker")
    for i in range(4):
        np.testing.assert_array_equal(reader.read(copy_of(kept / "train", i)), stored.read(i))
