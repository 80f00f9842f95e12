"""Sequence noise: add another utterance of the batch (Saon et al. 2019, ICASSP).

Letters in names: N utterances, T frames, F filterbank bins.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from asrtool.data.features.cmvn import Cmvn
from asrtool.train.batches.batch import Augment, TrainingBatch


def adding(fraction: float, weight: float, directory: Path, cmvn: str) -> Augment:
    """Return the augmentation that adds to a `fraction` of a batch.

    `directory` is the training set. Raises AsrtoolError if its normalisation cannot be read.
    """
    std_F = Cmvn(directory, cmvn).scale_of_all() if fraction else np.ones(1, np.float32)

    def add(batch: TrainingBatch, random: np.random.Generator) -> None:
        if fraction:
            add_utterances(batch.inputs_NT, batch.input_lens_N, fraction, weight, std_F, random)

    return add


def add_utterances(
    feats_NTF: np.ndarray,
    feat_lens_N: np.ndarray,
    fraction: float,
    weight: float,
    std_F: np.ndarray,
    random: np.random.Generator,
) -> None:
    """Add `weight` times another utterance's energies to some utterances, in place.

    Features are log energies minus a mean, divided by `std_F`, so both are at their mean level, and the noise is the
    quieter one.
    """
    num_utterances = len(feats_NTF)
    if num_utterances < 2:
        return
    noisy_N = random.random(num_utterances) < fraction
    other_N = (np.arange(num_utterances) + random.integers(1, num_utterances, num_utterances)) % num_utterances
    clean_NTF = feats_NTF.copy()
    for n in np.flatnonzero(noisy_N):
        num = min(feat_lens_N[n], feat_lens_N[other_N[n]])
        noise_TF = clean_NTF[other_N[n], :num] * std_F + np.float32(np.log(weight))
        feats_NTF[n, :num] = np.logaddexp(clean_NTF[n, :num] * std_F, noise_TF) / std_F
