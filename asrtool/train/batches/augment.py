"""Augmentation of a batch: SpecAugment, and sequence noise.

Letters in names: N utterances, T frames, F filterbank bins.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from asrtool.data.features.cmvn import Cmvn
from asrtool.settings.train import SpecAugment, Train
from asrtool.train.batches.batch import TrainingBatch


class BatchAugment:
    """Sequence noise added to a batch, then masks, in place.

    With two `views` the masks are drawn twice: for the inputs and for a copy of them. Raises AsrtoolError if the
    normalisation of the training set in `directory` cannot be read.
    """

    def __init__(self, settings: Train, masks: SpecAugment, directory: Path, cmvn: str, views: int = 1) -> None:
        self.fraction, self.weight = settings.sequence_noise, settings.sequence_noise_weight
        self.masks = masks
        self.std_F = Cmvn(directory, cmvn).global_std() if self.fraction else np.ones(1, np.float32)
        self.views = views

    def __call__(self, batch: TrainingBatch, random: np.random.Generator) -> None:
        if self.fraction:
            add_utterances(batch.inputs_NT, batch.input_lens_N, self.fraction, self.weight, self.std_F, random)
        others_NT = batch.inputs_NT.copy() if self.views == 2 else None
        mask_features(batch.inputs_NT, batch.input_lens_N, self.masks, random)
        if others_NT is not None:
            mask_features(others_NT, batch.input_lens_N, self.masks, random)
            batch.others_NT = others_NT


def mask_features(
    feats_NTF: np.ndarray, feat_lens_N: np.ndarray, settings: SpecAugment, random: np.random.Generator
) -> None:
    """Set masked values to 0, the mean of normalised features, in place.

    Each mask is 0 to `max_freq_bins` bins or 0 to `max_time_frames` frames wide; the time masks of an utterance of t
    frames together at most `max_time_fraction` * t.
    """
    num_utterances, _, num_bins = feats_NTF.shape
    num_masks = settings.num_freq_masks
    bins = random.integers(0, min(settings.max_freq_bins, num_bins) + 1, (num_utterances, num_masks))
    bin_starts = random.integers(0, num_bins - bins + 1)
    frames = _time_widths(feat_lens_N, settings, random)
    frame_starts = random.integers(0, feat_lens_N[:, None] - frames + 1)
    for n, feats_TF in enumerate(feats_NTF):
        for start, width in zip(bin_starts[n], bins[n], strict=True):
            feats_TF[:, start : start + width] = 0
        for start, width in zip(frame_starts[n], frames[n], strict=True):
            feats_TF[start : start + width] = 0


def _time_widths(feat_lens_N: np.ndarray, settings: SpecAugment, random: np.random.Generator) -> np.ndarray:
    num_masks = settings.num_time_masks
    if num_masks == 0:
        return np.zeros((len(feat_lens_N), 0), dtype=np.int64)
    part = (settings.max_time_fraction * feat_lens_N / num_masks).astype(np.int64)
    widest_N = np.minimum(settings.max_time_frames, part)
    return random.integers(0, widest_N[:, None] + 1, (len(feat_lens_N), num_masks))


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
