"""A mixture of Gaussians against densities computed one by one, and against where the frames were drawn from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from asrtool.data.features.ivectors import gaussians
from asrtool.data.features.ivectors.gaussians import (
    FRAMES_EACH,
    VARIANCE_FLOOR,
    Gaussians,
    fit_gaussians,
    improve,
    split,
)

MIXTURE = Gaussians(
    np.array([0.2, 0.5, 0.3]),
    np.array([[0.0, 1.0], [3.0, -1.0], [-2.0, 2.0]]),
    np.array([[1.0, 0.5], [0.2, 2.0], [1.5, 1.0]]),
)


def draw(mixture: Gaussians, num: int, seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    which_T = random.choice(len(mixture.weights_C), num, p=mixture.weights_C)
    noise_TD = random.standard_normal((num, mixture.means_CD.shape[1]))
    drawn_TD: np.ndarray = mixture.means_CD[which_T] + np.sqrt(mixture.variances_CD[which_T]) * noise_TD
    return drawn_TD


def test_likelihoods_and_posteriors_are_those_of_the_densities() -> None:
    frames_TD = draw(MIXTURE, 50)
    densities_TC = np.stack(
        [
            weight * multivariate_normal(mean, np.diag(variance)).pdf(frames_TD)
            for weight, mean, variance in zip(MIXTURE.weights_C, MIXTURE.means_CD, MIXTURE.variances_CD, strict=True)
        ],
        axis=1,
    )
    np.testing.assert_allclose(MIXTURE.log_likelihoods(frames_TD), np.log(densities_TC), rtol=1e-10)
    posteriors_TC, total_T = MIXTURE.posteriors(frames_TD)
    np.testing.assert_allclose(posteriors_TC, densities_TC / densities_TC.sum(1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(total_T, np.log(densities_TC.sum(1)), rtol=1e-10)
    far_TC, _ = MIXTURE.posteriors(np.full((1, 2), 1e4))
    assert np.isfinite(far_TC).all()


def test_a_step_is_the_weighted_means_and_raises_the_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussians, "CHUNK_FRAMES", 64)  # in several pieces
    frames_TD = draw(MIXTURE, 500)
    found = split(Gaussians(np.ones(1), frames_TD.mean(0)[None], frames_TD.var(0)[None]))
    posteriors_TC, _ = found.posteriors(frames_TD)
    improved, before = improve(found, frames_TD, np.zeros(2))
    for c in range(2):
        weights_T = posteriors_TC[:, c]
        np.testing.assert_allclose(improved.means_CD[c], np.average(frames_TD, axis=0, weights=weights_T))
        variance_D = np.average((frames_TD - improved.means_CD[c]) ** 2, axis=0, weights=weights_T)
        np.testing.assert_allclose(improved.variances_CD[c], variance_D)
        assert improved.weights_C[c] == pytest.approx(weights_T.mean())
    means = [before]
    for _ in range(10):
        improved, mean = improve(improved, frames_TD, np.zeros(2))
        means.append(mean)
    assert (np.diff(means) > 0).all()
    assert means[1] == pytest.approx(found_after_one(frames_TD, found))


def found_after_one(frames_TD: np.ndarray, gaussians: Gaussians) -> float:
    return float(improve(gaussians, frames_TD, np.zeros(2))[0].posteriors(frames_TD)[1].mean())


def test_groups_of_frames_are_found() -> None:
    corners = np.array([[-9.0, -9.0], [-3.0, -2.0], [3.0, 4.0], [9.0, 8.0]])
    frames_TD = draw(Gaussians(np.full(4, 0.25), corners, np.ones((4, 2))), 4000)
    found = fit_gaussians(frames_TD, 4)
    order = found.means_CD[:, 0].argsort()
    np.testing.assert_allclose(found.means_CD[order], corners, atol=0.15)
    np.testing.assert_allclose(found.variances_CD, 1.0, atol=0.15)
    np.testing.assert_allclose(found.weights_C, 0.25, atol=0.03)


@pytest.mark.parametrize(("num_frames", "most", "expected"), [(8 * FRAMES_EACH, 64, 8), (1000, 4, 4), (3, 16, 1)])
def test_there_are_as_many_as_the_frames_are_enough_for(num_frames: int, most: int, expected: int) -> None:
    assert len(fit_gaussians(draw(MIXTURE, num_frames), most).weights_C) == expected


def test_a_gaussian_of_equal_frames_keeps_some_variance_and_one_of_none_stays() -> None:
    frames_TD = np.concatenate([np.zeros((500, 2)), draw(MIXTURE, 500)])
    found = fit_gaussians(frames_TD, 8)
    assert (found.variances_CD >= 0.999 * VARIANCE_FLOOR * frames_TD.var(0)).all()
    lonely = Gaussians(np.array([0.5, 0.5]), np.array([[0.0, 0.0], [1e3, 1e3]]), np.ones((2, 2)))
    improved, _ = improve(lonely, frames_TD, np.full(2, 0.01))
    assert improved.means_CD[1].tolist() == [1e3, 1e3]
    assert np.isfinite(improved.log_likelihoods(frames_TD)).all()
