"""What a frame holds: a feature type turns samples into frames, and knows how many values one has."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from asrtool.settings.data import Features


class FeatureType(ABC):
    """Built with all settings of the features; those of its own are ``features.type.settings``.

    Its settings class has `num_features`, the values of a frame: a number, or a function of all settings of features.
    """

    @abstractmethod
    def __init__(self, features: Features) -> None:
        """Load what it needs."""

    @abstractmethod
    def extract(self, samples_S: np.ndarray) -> np.ndarray:
        """Frames (T, F), float32 and finite, of the samples of an utterance, float32 in [-1, 1].

        A frame is `frame_length_ms` long, and each begins `frame_shift_ms` after the last one.
        """
