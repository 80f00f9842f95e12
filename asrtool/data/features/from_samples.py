"""Samples that are in memory to frames, as a training set has them."""

from __future__ import annotations

import numpy as np
from lhotse.augmentation import Resample

from asrtool.data.features.feature_type import FeatureType
from asrtool.data.features.threads import one_thread
from asrtool.settings.data import Features


def frames_of(
    samples_S: np.ndarray, rate_hz: int, features: Features, extractor: FeatureType | None = None
) -> np.ndarray:
    """Return frames (T, F) of samples (S,) in [-1, 1], resampled if needed."""
    if rate_hz != features.sampling_rate_hz:
        samples_S = np.ascontiguousarray(Resample(rate_hz, features.sampling_rate_hz)(samples_S[None], rate_hz)[0])
    if len(samples_S) < features.frame_length_ms / 1000 * features.sampling_rate_hz:
        return np.zeros((0, features.num_features), np.float32)
    extractor = extractor or features.type.load()(features)
    with one_thread():
        return extractor.extract(samples_S)
