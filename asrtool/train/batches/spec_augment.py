"""SpecAugment: random masks in frequency and time (Park et al., 2019).

Letters in names: N utterances, T frames, F filterbank bins.
"""

from __future__ import annotations

import numpy as np

from asrtool.settings.train import SpecAugment
from asrtool.train.batches.batch import Augment, TrainingBatch


def masking(settings: SpecAugment) -> Augment:
    """Return the augmentation that masks a batch."""

    def mask(batch: TrainingBatch, random: np.random.Generator) -> None:
        mask_features(batch.inputs_NT, batch.input_lens_N, settings, random)

    return mask


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
