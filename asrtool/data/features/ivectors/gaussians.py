"""A mixture of Gaussians with diagonal covariances, fitted to frames by expectation and maximisation.

Letters in names: T frames, C Gaussians, D values of a frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

CHUNK_FRAMES = 10_000  # whose likelihoods are in memory at a time
FRAMES_EACH = 50  # of all frames, at least, for a Gaussian
NUM_STEPS = 4  # of EM behind each split
SPLIT_STD = 0.2  # standard deviations from a mean to those of its two halves
VARIANCE_FLOOR = 0.01  # of that of all frames


@dataclass(frozen=True)
class Gaussians:
    """p(x) = sum over c of w_c N(x; m_c, v_c); float64."""

    weights_C: np.ndarray
    means_CD: np.ndarray
    variances_CD: np.ndarray

    def log_likelihoods(self, frames_TD: np.ndarray) -> np.ndarray:
        """ln w_c N(x; m_c, v_c) of each frame, (T, C)."""
        precisions_CD = 1 / self.variances_CD
        constant_C = np.log(self.weights_C) - 0.5 * (
            np.log(2 * math.pi * self.variances_CD) + self.means_CD**2 * precisions_CD
        ).sum(1)
        linear_TC = frames_TD @ (self.means_CD * precisions_CD).T
        result_TC: np.ndarray = constant_C + linear_TC - 0.5 * (frames_TD**2 @ precisions_CD.T)
        return result_TC

    def posteriors(self, frames_TD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """p(c | x) of each frame (T, C), and ln p(x) (T,)."""
        of_all_TC = self.log_likelihoods(frames_TD)
        most_T1 = of_all_TC.max(axis=1, keepdims=True)
        scaled_TC = np.exp(of_all_TC - most_T1)
        sum_T1 = scaled_TC.sum(axis=1, keepdims=True)
        return scaled_TC / sum_T1, (most_T1 + np.log(sum_T1))[:, 0]


def fit_gaussians(frames_TD: np.ndarray, most: int) -> Gaussians:
    """Begin with one Gaussian and split all, up to `most` of them or as many as the frames are enough for."""
    variance_D = frames_TD.var(axis=0)
    floor_D = VARIANCE_FLOOR * variance_D
    found = Gaussians(np.ones(1), frames_TD.mean(axis=0, keepdims=True), variance_D[None])
    while 2 * len(found.weights_C) <= min(most, len(frames_TD) / FRAMES_EACH):
        found = split(found)
        for _ in range(NUM_STEPS):
            found, _ = improve(found, frames_TD, floor_D)
    return found


def split(gaussians: Gaussians) -> Gaussians:
    """Two in the place of each, on either side of its mean."""
    offset_CD = SPLIT_STD * np.sqrt(gaussians.variances_CD)
    return Gaussians(
        np.tile(gaussians.weights_C / 2, 2),
        np.concatenate([gaussians.means_CD + offset_CD, gaussians.means_CD - offset_CD]),
        np.tile(gaussians.variances_CD, (2, 1)),
    )


def improve(gaussians: Gaussians, frames_TD: np.ndarray, floor_D: np.ndarray) -> tuple[Gaussians, float]:
    """A step of EM; also the mean of ln p(x) before it. A Gaussian that hardly any frame is of stays where it is."""
    total = 0.0
    count_C, sum_CD, square_CD = (np.zeros_like(part) for part in (gaussians.weights_C, *2 * (gaussians.means_CD,)))
    for part_TD in chunks(frames_TD):
        posteriors_TC, log_likelihood_T = gaussians.posteriors(part_TD)
        total += float(log_likelihood_T.sum())
        count_C += posteriors_TC.sum(axis=0)
        sum_CD += posteriors_TC.T @ part_TD
        square_CD += posteriors_TC.T @ part_TD**2
    is_used_C1 = (count_C >= 1)[:, None]
    safe_C1 = np.maximum(count_C, 1)[:, None]
    means_CD = np.where(is_used_C1, sum_CD / safe_C1, gaussians.means_CD)
    variances_CD = np.where(is_used_C1, square_CD / safe_C1 - means_CD**2, gaussians.variances_CD)
    weights_C = np.maximum(count_C / len(frames_TD), 1e-12)
    improved = Gaussians(weights_C / weights_C.sum(), means_CD, np.maximum(variances_CD, floor_D))
    return improved, total / len(frames_TD)


def chunks(frames_TD: np.ndarray) -> Iterator[np.ndarray]:
    """The frames, some thousand at a time."""
    for begin in range(0, len(frames_TD), CHUNK_FRAMES):
        yield frames_TD[begin : begin + CHUNK_FRAMES]
