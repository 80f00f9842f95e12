"""Mean and variance normalisation, with NumPy on the concatenated features as the oracle."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrtool.data.features.cmvn import MIN_SPEAKER_FRAMES, STD_FLOOR, Cmvn, Moments, add_moments, write_cmvn
from asrtool.errors import AsrtoolError

NUM_BINS = 5


def features(seed: int, num_frames: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.normal(size=(num_frames, NUM_BINS)) * [1, 2, 3, 4, 5] + seed - 8).astype(np.float32)


def write_speakers(directory: Path, speakers: dict[str, np.ndarray]) -> np.ndarray:
    """Write the normalisation of these features; returns them in one piece."""
    totals: dict[str, Moments] = {}
    for name, feats_TF in speakers.items():
        add_moments(totals, {name: Moments.of(feats_TF)})
    write_cmvn(directory, totals, functools.reduce(Moments.__add__, totals.values()))
    return np.concatenate(list(speakers.values()))


def test_a_small_deviation_around_a_large_mean_is_kept_and_a_constant_bin_gets_the_floor() -> None:
    random = np.random.default_rng(0)
    feats_TF = (4000 + random.normal(size=(20000, NUM_BINS)) * 0.5).astype(np.float32)
    feats_TF[:, 0] = -15.942385
    mean_F, std_F = Moments.of(feats_TF).mean_std()
    assert mean_F[0] == pytest.approx(-15.942385, rel=1e-6)
    np.testing.assert_allclose(std_F[1:], feats_TF[:, 1:].astype(np.float64).std(axis=0), rtol=1e-5)
    assert std_F[0] == np.float32(STD_FLOOR)


@given(st.integers(0, 40), st.integers(0, 99))
def test_an_utterance_is_normalised_by_itself(tmp_path_factory: pytest.TempPathFactory, length: int, seed: int) -> None:
    directory = tmp_path_factory.mktemp("cmvn")
    write_speakers(directory, {"a": features(100, 800)})
    feats_TF = features(seed, length)
    exact_TF = feats_TF.astype(np.float64)
    expected_TF = exact_TF
    if length:
        expected_TF = (exact_TF - exact_TF.mean(axis=0)) / np.maximum(exact_TF.std(axis=0), STD_FLOOR)
    found_TF = Cmvn(directory, "utterance").normalise("a", feats_TF)
    assert found_TF.dtype == np.float32
    np.testing.assert_allclose(found_TF, expected_TF, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("speaker", ["quiet", "unknown"])
def test_a_speaker_with_little_speech_is_normalised_like_everyone(tmp_path: Path, speaker: str) -> None:
    speakers = {"quiet": features(1, MIN_SPEAKER_FRAMES - 1), "loud": features(2, MIN_SPEAKER_FRAMES)}
    whole = write_speakers(tmp_path, speakers).astype(np.float64)
    expected = (speakers["quiet"] - whole.mean(axis=0)) / whole.std(axis=0)
    np.testing.assert_allclose(Cmvn(tmp_path, "speaker").normalise(speaker, speakers["quiet"]), expected, atol=1e-4)
    own = Cmvn(tmp_path, "speaker").normalise("loud", speakers["loud"])
    np.testing.assert_allclose(own.mean(axis=0), 0, atol=1e-4)
    expected = (speakers["loud"] - whole.mean(axis=0)) / whole.std(axis=0)
    np.testing.assert_allclose(Cmvn(tmp_path, "global").normalise("loud", speakers["loud"]), expected, atol=1e-4)
    np.testing.assert_array_equal(Cmvn(tmp_path, "none").normalise("loud", speakers["loud"]), speakers["loud"])


@pytest.mark.parametrize("damage", ["missing", "truncated", "other"])
def test_a_broken_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "cmvn.npz"
    write_speakers(tmp_path, {"one": features(1, 600)})
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:200])
    else:
        np.savez(path, other=np.zeros(3))
    with pytest.raises(AsrtoolError, match=r"cmvn\.npz: no readable normalisation: .*; run the features stage"):
        Cmvn(tmp_path, "speaker")
