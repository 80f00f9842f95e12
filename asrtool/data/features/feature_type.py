"""Interface of feature types: samples to frames."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from asrtool.settings.data import Features


class FeatureType(ABC):
    """Feature type, built with all settings of the features.

    Its own are ``features.type.settings``, whose class has `num_features`: a number, or a function of all settings of
    features.
    """

    @abstractmethod
    def __init__(self, features: Features) -> None:
        """Load what it needs."""

    @abstractmethod
    def extract(self, samples_S: np.ndarray) -> np.ndarray:
        """Return frames (T, F), float32 and finite, of samples (S,) in [-1, 1].

        A frame is `frame_length_ms` long, every `frame_shift_ms`.
        """
