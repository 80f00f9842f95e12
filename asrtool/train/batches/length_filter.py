"""Minimum lengths and normaliser counts of an objective, for many utterances.

Letters in names: N utterances.
"""

from __future__ import annotations

import functools

import numpy as np
import torch

from asrtool.models.acoustic import AcousticModel, Objective
from asrtool.models.objectives.targets import Targets


class Demands:
    """Minimum lengths an objective needs, by frames or rows and by texts."""

    def __init__(self, model: AcousticModel, targets: Targets) -> None:
        """Take the model and the targets of the texts."""
        self._encoder = model.encoder
        self._objective = model.objective
        self._targets = targets

    def num_rows(self, num_frames_N: np.ndarray) -> np.ndarray:
        """Return the encoder rows of each number of frames, (N,) int64."""
        rows: np.ndarray = self._encoder.output_lens(torch.from_numpy(num_frames_N.astype(np.int64))).numpy()
        return rows

    def fits(self, num_rows_N: np.ndarray, texts_N: np.ndarray) -> np.ndarray:
        """Return which utterances can be trained on, (N,) bool."""
        if type(self._objective).fits is Objective.fits:
            fits: np.ndarray = self._needed[texts_N] <= num_rows_N
            return fits
        return np.array([not self.reason(*one) for one in _each(num_rows_N, texts_N)], bool)

    def reason(self, num_rows: int, text: int) -> str:
        """Return why an utterance cannot be trained on, or ''."""
        return self._objective.fits(num_rows, self._targets[text].tolist())

    def normalisers(self, num_rows_N: np.ndarray, texts_N: np.ndarray) -> np.ndarray:
        """Return the share of each utterance in the normaliser of the loss, (N,) int64."""
        if type(self._objective).normaliser is Objective.normaliser:
            return self._objective.counts(num_rows_N, self._lens[texts_N])
        ask = self._objective.normaliser
        return np.array([ask(num, self._targets[text].tolist()) for num, text in _each(num_rows_N, texts_N)], np.int64)

    @functools.cached_property
    def _needed(self) -> np.ndarray:
        return self._objective.rows_needed(self._targets)

    @functools.cached_property
    def _lens(self) -> np.ndarray:
        return self._targets.lens


def _each(num_rows_N: np.ndarray, texts_N: np.ndarray) -> zip[tuple[int, int]]:
    return zip(num_rows_N.tolist(), texts_N.tolist(), strict=True)
