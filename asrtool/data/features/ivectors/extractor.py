"""I-vectors (Dehak et al. 2011, "Front-end factor analysis for speaker verification"): a speaker in R values.

A frame that is of Gaussian c of all speakers' mixture is drawn, for a speaker with vector w, from

    N(m_c + s_c T_c w, s_c^2), with w ~ N(0, I),

where s_c are the standard deviations of c. T is found by EM (Kenny et al. 2005, "Eigenvoice modeling with sparse
training data"), from the sums that frames leave of each utterance. Neighbouring frames say nearly the same, so each
counts FRAME_WEIGHT.

Letters in names: T frames, F features of a frame, D values of them that are looked at, C Gaussians, R values of a
vector, U utterances.
"""

from __future__ import annotations

import functools
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.data.features.ivectors.gaussians import Gaussians, chunks, fit_gaussians
from asrtool.data.storage.index import RERUN
from asrtool.errors import AsrtoolError

NUM_GAUSSIANS = 128
NUM_DIRECTIONS = 20  # D, the directions in which frames vary most
NUM_STEPS = 6  # of EM for T
FRAME_WEIGHT = 0.1
BATCH = 500  # utterances whose covariances are in memory at a time
START_STD = 0.1  # of the random T that EM begins with


@dataclass(frozen=True)
class Sums:
    """Of some frames, by Gaussian: how many, and how far from its mean in its standard deviations. They add up."""

    counts_C: np.ndarray
    offsets_CD: np.ndarray

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.counts_C + other.counts_C, self.offsets_CD + other.offsets_CD)


@dataclass(frozen=True)
class Extractor:
    """What vectors are computed by; float64."""

    mean_F: np.ndarray
    basis_FD: np.ndarray  # to whitened directions
    gaussians: Gaussians
    loadings_CDR: np.ndarray  # T

    @property
    def size(self) -> int:
        """R."""
        return int(self.loadings_CDR.shape[2])

    def sums(self, feats_TF: np.ndarray) -> Sums:
        """Those of features as they are stored."""
        return sums_of((feats_TF - self.mean_F) @ self.basis_FD, self.gaussians)

    def vector(self, sums: Sums) -> np.ndarray:
        """The mean of w, given these frames: (R,); zeros where there are none."""
        precision_RR = np.eye(self.size) + (sums.counts_C @ self._products_Cr).reshape(self.size, self.size)
        linear_R = sums.offsets_CD.reshape(-1) @ self.loadings_CDR.reshape(-1, self.size)
        return np.linalg.solve(precision_RR, linear_R)

    @functools.cached_property
    def _products_Cr(self) -> np.ndarray:
        return products(self.loadings_CDR)

    def save(self, path: Path) -> None:
        """Write a NumPy archive; it is not atomic by itself."""
        parts = {"weights_C": self.gaussians.weights_C, "means_CD": self.gaussians.means_CD}
        parts |= {"variances_CD": self.gaussians.variances_CD, "loadings_CDR": self.loadings_CDR}
        with open(path, "wb") as file:
            np.savez(file, mean_F=self.mean_F, basis_FD=self.basis_FD, **parts)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Extractor:
        """What `save` wrote; AsrtoolError when the file is missing or broken."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
                gaussians = Gaussians(found["weights_C"], found["means_CD"], found["variances_CD"])
                return cls(found["mean_F"], found["basis_FD"], gaussians, found["loadings_CDR"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise AsrtoolError(f"{path}: no readable extractor of speaker vectors: {error}", RERUN) from error


def sums_of(frames_TD: np.ndarray, gaussians: Gaussians) -> Sums:
    """Of frames in the directions that `gaussians` are of."""
    total = Sums(np.zeros_like(gaussians.weights_C), np.zeros_like(gaussians.means_CD))
    for part_TD in chunks(frames_TD):
        posteriors_TC, _ = gaussians.posteriors(part_TD)
        counts_C = FRAME_WEIGHT * posteriors_TC.sum(axis=0)
        offsets_CD = FRAME_WEIGHT * posteriors_TC.T @ part_TD - counts_C[:, None] * gaussians.means_CD
        total += Sums(counts_C, offsets_CD / np.sqrt(gaussians.variances_CD))
    return total


def fit_extractor(frames_TF: np.ndarray, utterances: Sequence[np.ndarray], size: int) -> Extractor:
    """By `frames_TF` of many speakers the Gaussians, by the features (T, F) of `utterances` the `size` values of w."""
    mean_F, basis_FD = whitening(frames_TF)
    gaussians = fit_gaussians((frames_TF - mean_F) @ basis_FD, NUM_GAUSSIANS)
    sums = [sums_of((feats_TF - mean_F) @ basis_FD, gaussians) for feats_TF in utterances]
    counts_UC, offsets_UCD = np.stack([one.counts_C for one in sums]), np.stack([one.offsets_CD for one in sums])
    # EM needs different columns to begin with; the generator makes them the same in every run.
    start_CDR = START_STD * np.random.default_rng(0).standard_normal((*gaussians.means_CD.shape, size))
    loadings_CDR = start_CDR
    for _ in range(NUM_STEPS):
        loadings_CDR, _ = improve(loadings_CDR, counts_UC, offsets_UCD)
    return Extractor(mean_F, basis_FD, gaussians, loadings_CDR)


def whitening(frames_TF: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean (F,), and (F, D) to the directions of most variance, each then of variance 1."""
    mean_F = frames_TF.mean(axis=0, dtype=np.float64)
    variances_F, directions_FF = np.linalg.eigh(np.cov(frames_TF, rowvar=False, dtype=np.float64))
    last = slice(-1, -1 - min(NUM_DIRECTIONS, len(mean_F)), -1)
    return mean_F, directions_FF[:, last] / np.sqrt(np.maximum(variances_F[last], 1e-10))


def posterior(
    loadings_CDR: np.ndarray, counts_UC: np.ndarray, offsets_UCD: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of w given each utterance: mean (U, R), covariance (U, R, R), and by how much T makes its frames more likely.

    With L = I + sum over c of n_c T_c' T_c and b = sum over c of T_c' f_c the mean is L^-1 b, the covariance L^-1,
    and the gain in nats (b' L^-1 b - ln |L|) / 2, (U,).
    """
    num, size = len(counts_UC), loadings_CDR.shape[2]
    precision_URR = np.eye(size) + (counts_UC @ products(loadings_CDR)).reshape(num, size, size)
    linear_UR = offsets_UCD.reshape(num, -1) @ loadings_CDR.reshape(-1, size)
    covariance_URR = np.linalg.inv(precision_URR)
    mean_UR = (covariance_URR @ linear_UR[:, :, None])[:, :, 0]
    gain_U = 0.5 * ((mean_UR * linear_UR).sum(axis=1) - np.linalg.slogdet(precision_URR)[1])
    return mean_UR, covariance_URR, gain_U


def products(loadings_CDR: np.ndarray) -> np.ndarray:
    """T_c' T_c, each as R R values in a row."""
    return (loadings_CDR.transpose(0, 2, 1) @ loadings_CDR).reshape(len(loadings_CDR), -1)


def improve(loadings_CDR: np.ndarray, counts_UC: np.ndarray, offsets_UCD: np.ndarray) -> tuple[np.ndarray, float]:
    """A step of EM; also the gain before it.

    T_c = (sum over utterances of f_c E[w]') (sum of n_c E[w w'])^-1, and then T_c P with P P' the mean of E[w w']. That
    mean becomes I, as the prior has it; EM alone takes hundreds of steps to the scale of T (minimum divergence, Brummer
    2009, "The EM algorithm and minimum divergence").
    """
    num_gaussians, num_directions, size = loadings_CDR.shape
    cross_MR = np.zeros((num_gaussians * num_directions, size))  # M = C D, all offsets
    squares_Cr = np.zeros((num_gaussians, size * size))
    gain, second_RR = 0.0, np.zeros((size, size))
    for some in _batches(len(counts_UC)):
        mean_UR, second_URR, gain_U = posterior(loadings_CDR, counts_UC[some], offsets_UCD[some])
        second_URR += mean_UR[:, :, None] * mean_UR[:, None, :]
        cross_MR += offsets_UCD[some].reshape(len(mean_UR), -1).T @ mean_UR
        squares_Cr += counts_UC[some].T @ second_URR.reshape(len(mean_UR), -1)
        second_RR += second_URR.sum(axis=0)
        gain += float(gain_U.sum())
    squares_CRR = squares_Cr.reshape(num_gaussians, size, size) + 1e-8 * np.eye(size)  # where no frame is of c
    cross_CDR = cross_MR.reshape(loadings_CDR.shape)
    improved_CDR = np.linalg.solve(squares_CRR, cross_CDR.transpose(0, 2, 1)).transpose(0, 2, 1)
    return improved_CDR @ np.linalg.cholesky(second_RR / len(counts_UC)), gain


def _batches(num: int) -> Iterator[slice]:
    for begin in range(0, num, BATCH):
        yield slice(begin, begin + BATCH)
