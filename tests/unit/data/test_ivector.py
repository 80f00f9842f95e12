"""I-vectors against the joint Gaussian of all frames and w, and against what toy speakers were drawn from.

Letters in names: as in asrtool/data/features/ivectors/extractor.py; M is all C D offsets, or all frames of an
utterance.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from asrtool.data.features.ivectors import extractor as ivector
from asrtool.data.features.ivectors.extractor import (
    Extractor,
    Sums,
    fit_extractor,
    improve,
    posterior,
    sums_of,
    whitening,
)
from asrtool.data.features.ivectors.gaussians import Gaussians
from asrtool.errors import AsrtoolError

FAR = Gaussians(
    np.array([0.5, 0.3, 0.2]),
    np.array([[-90.0, 0.0], [0.0, 70.0], [80.0, -10.0]]),
    np.array([[1.0, 0.5], [0.2, 2.0], [1.5, 1.0]]),
)  # so far apart that no frame is of two
LOADINGS_CDR = np.random.default_rng(5).standard_normal((3, 2, 4))
EXTRACTOR = Extractor(np.zeros(2), np.eye(2), FAR, LOADINGS_CDR)


def frames_of(vector_R: np.ndarray, which_T: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Drawn as the model says, each of the Gaussian named."""
    noise_TD = random.standard_normal((len(which_T), 2))
    std_CD = np.sqrt(FAR.variances_CD)
    offsets_TD = (LOADINGS_CDR @ vector_R)[which_T] + noise_TD
    drawn_TD: np.ndarray = FAR.means_CD[which_T] + std_CD[which_T] * offsets_TD
    return drawn_TD


def joint(which_T: np.ndarray, frames_TD: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All frames as one Gaussian: its covariance (M, M), that with w (M, R), and what was seen (M,)."""
    rows_MR = LOADINGS_CDR[which_T].reshape(-1, 4)
    seen_M = ((frames_TD - FAR.means_CD[which_T]) / np.sqrt(FAR.variances_CD[which_T])).reshape(-1)
    return rows_MR @ rows_MR.T + np.eye(len(rows_MR)), rows_MR, seen_M


@pytest.fixture
def every_frame_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ivector, "FRAME_WEIGHT", 1.0)


@pytest.mark.usefixtures("every_frame_counts")
@pytest.mark.parametrize("num_frames", [1, 2, 9, 40])
def test_the_vector_is_the_conditional_mean_given_all_frames(num_frames: int) -> None:
    random = np.random.default_rng(num_frames)
    which_T = random.integers(0, 3, num_frames)
    frames_TD = frames_of(random.standard_normal(4), which_T, random)
    covariance_MM, cross_MR, seen_M = joint(which_T, frames_TD)
    expected_R = cross_MR.T @ np.linalg.solve(covariance_MM, seen_M)
    sums = EXTRACTOR.sums(frames_TD)
    np.testing.assert_allclose(EXTRACTOR.vector(sums), expected_R, atol=1e-9)
    mean_UR, covariance_URR, gain_U = posterior(LOADINGS_CDR, sums.counts_C[None], sums.offsets_CD[None])
    np.testing.assert_allclose(mean_UR[0], expected_R, atol=1e-9)
    left_RR = np.eye(4) - cross_MR.T @ np.linalg.solve(covariance_MM, cross_MR)
    np.testing.assert_allclose(covariance_URR[0], left_RR, atol=1e-9)
    with_w = multivariate_normal(np.zeros(len(seen_M)), covariance_MM).logpdf(seen_M)
    without = multivariate_normal(np.zeros(len(seen_M)), np.eye(len(seen_M))).logpdf(seen_M)
    assert gain_U[0] == pytest.approx(with_w - without, abs=1e-8)


def test_no_frames_give_zeros_and_frames_count_a_tenth() -> None:
    nothing = Sums(np.zeros(3), np.zeros((3, 2)))
    assert EXTRACTOR.vector(nothing).tolist() == [0.0] * 4
    random = np.random.default_rng(1)
    which_T = np.array([0, 2, 2])
    frames_TD = frames_of(random.standard_normal(4), which_T, random)
    sums = EXTRACTOR.sums(np.tile(frames_TD, (10, 1)))
    np.testing.assert_allclose(sums.counts_C, [1.0, 0.0, 2.0], atol=1e-9)
    offsets_TD = (frames_TD - FAR.means_CD[which_T]) / np.sqrt(FAR.variances_CD[which_T])
    np.testing.assert_allclose(sums.offsets_CD, [offsets_TD[0], [0, 0], offsets_TD[1] + offsets_TD[2]], atol=1e-9)


def test_sums_add_up_and_share_a_frame_between_gaussians() -> None:
    near = Gaussians(np.array([0.5, 0.5]), np.array([[0.0, 0.0], [1.0, 1.0]]), np.ones((2, 2)))
    frames_TD = np.random.default_rng(2).standard_normal((30, 2))
    posteriors_TC, _ = near.posteriors(frames_TD)
    whole = sums_of(frames_TD, near)
    for c in range(2):
        expected_D = sum(
            p * (frame - near.means_CD[c]) for p, frame in zip(posteriors_TC[:, c], frames_TD, strict=True)
        )
        np.testing.assert_allclose(whole.offsets_CD[c], 0.1 * expected_D, atol=1e-12)
    parts = sums_of(frames_TD[:11], near) + sums_of(frames_TD[11:], near)
    np.testing.assert_allclose(parts.counts_C, whole.counts_C)
    np.testing.assert_allclose(parts.offsets_CD, whole.offsets_CD)


def toy_sums(num: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors (U, R) of speakers, and the counts and offsets of what they say."""
    random = np.random.default_rng(seed)
    vectors_UR = random.standard_normal((num, 4))
    counts_UC = random.uniform(5, 60, (num, 3))
    noise_UCD = np.sqrt(counts_UC)[:, :, None] * random.standard_normal((num, 3, 2))
    return vectors_UR, counts_UC, counts_UC[:, :, None] * (LOADINGS_CDR @ vectors_UR.T).transpose(2, 0, 1) + noise_UCD


def test_em_finds_what_speakers_were_drawn_from_and_always_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ivector, "BATCH", 128)  # in several pieces
    _, counts_UC, offsets_UCD = toy_sums(2000, seed=6)
    found_CDR = 0.1 * np.random.default_rng(0).standard_normal((3, 2, 4))
    gains = []
    for _ in range(40):
        found_CDR, gain = improve(found_CDR, counts_UC, offsets_UCD)
        gains.append(gain)
    assert (np.diff(gains) > -1e-6 * abs(gains[-1])).all()
    _, _, true_gain_U = posterior(LOADINGS_CDR, counts_UC, offsets_UCD)
    assert gains[-1] > 0.999 * true_gain_U.sum()
    # T is determined but for a rotation of w: T T' is what speakers vary by.
    found_MR, true_MR = found_CDR.reshape(6, 4), LOADINGS_CDR.reshape(6, 4)
    difference = np.linalg.norm(found_MR @ found_MR.T - true_MR @ true_MR.T) / np.linalg.norm(true_MR @ true_MR.T)
    assert difference < 0.1


def test_a_step_is_the_regression_of_offsets_on_the_posterior_scaled_to_the_prior() -> None:
    """Summed utterance by utterance."""
    _, counts_UC, offsets_UCD = toy_sums(5, seed=7)
    start_CDR = np.random.default_rng(8).standard_normal((3, 2, 4))
    cross_CDR, squares_CRR, second_RR = np.zeros((3, 2, 4)), np.zeros((3, 4, 4)), np.zeros((4, 4))
    for counts_C, offsets_CD in zip(counts_UC, offsets_UCD, strict=True):
        precision = np.eye(4) + sum(n * part.T @ part for n, part in zip(counts_C, start_CDR, strict=True))
        mean = np.linalg.solve(precision, sum(part.T @ f for part, f in zip(start_CDR, offsets_CD, strict=True)))
        second_RR += np.linalg.inv(precision) + np.outer(mean, mean)
        for c in range(3):
            cross_CDR[c] += np.outer(offsets_CD[c], mean)
            squares_CRR[c] += counts_C[c] * (np.linalg.inv(precision) + np.outer(mean, mean))
    expected = [cross @ np.linalg.inv(squares) for cross, squares in zip(cross_CDR, squares_CRR, strict=True)]
    found_CDR, _ = improve(start_CDR, counts_UC, offsets_UCD)
    expected = np.stack(expected) @ np.linalg.cholesky(second_RR / 5)
    np.testing.assert_allclose(found_CDR, expected, atol=1e-6)


def test_whitened_frames_have_variance_1_in_the_directions_of_most() -> None:
    random = np.random.default_rng(3)
    frames_TF = random.standard_normal((4000, 30)) @ random.standard_normal((30, 30)) + 7
    mean_F, basis_FD = whitening(frames_TF)
    white_TD = (frames_TF - mean_F) @ basis_FD
    assert white_TD.shape[1] == ivector.NUM_DIRECTIONS
    np.testing.assert_allclose(np.cov(white_TD, rowvar=False), np.eye(20), atol=1e-9)
    variances = np.linalg.eigvalsh(np.cov(frames_TF, rowvar=False))[::-1]
    lengths = 1 / np.linalg.norm(basis_FD, axis=0) ** 2
    np.testing.assert_allclose(lengths, variances[:20], rtol=1e-6)


def speech(speaker_F: np.ndarray, num: int, random: np.random.Generator) -> np.ndarray:
    """Frames of two sounds, each moved as the speaker has it."""
    sounds = np.where(random.random((num, 1)) < 0.5, np.full(6, 3.0), np.full(6, -3.0))
    said_TF: np.ndarray = sounds + speaker_F * np.sign(sounds) + 0.5 * random.standard_normal((num, 6))
    return said_TF.astype(np.float32)


def test_vectors_of_a_speaker_are_alike_and_those_of_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ivector, "NUM_GAUSSIANS", 4)  # for two sounds; more would be for a speaker each
    random = np.random.default_rng(9)
    speakers_KF = random.standard_normal((8, 6))
    utterances = [speech(speakers_KF[k % 8], 80, random) for k in range(200)]
    extractor = fit_extractor(np.concatenate(utterances), utterances, 5)
    new_UR = np.stack([extractor.vector(extractor.sums(speech(speakers_KF[k % 8], 300, random))) for k in range(16)])
    unit_UR = new_UR / np.linalg.norm(new_UR, axis=1, keepdims=True)
    cosines_UU = unit_UR @ unit_UR.T
    for k, row in enumerate(cosines_UU):
        assert set(np.argsort(row)[-2:]) == {k % 8, k % 8 + 8}
    again = fit_extractor(np.concatenate(utterances), utterances, 5)
    assert np.array_equal(again.loadings_CDR, extractor.loadings_CDR)
    extractor.save(tmp_path / "x.npz")
    loaded = Extractor.load(tmp_path / "x.npz")
    sums = loaded.sums(utterances[0])
    assert np.array_equal(loaded.vector(sums), extractor.vector(extractor.sums(utterances[0])))


@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
def test_a_file_that_is_no_extractor_is_refused_in_a_line(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(
        AsrtoolError, match=r"x.npz: no readable extractor of speaker vectors: .*run the features stage"
    ):
        Extractor.load(tmp_path / "x.npz")
