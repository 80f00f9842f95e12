"""Feature types: samples to frames, and types by lhotse."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from lhotse import Fbank, FbankConfig, FeatureExtractor
from lhotse.augmentation import Resample
from lhotse.features.kaldi.extractors import LogSpectrogram, LogSpectrogramConfig

from asrtool.data.workers.processes import torch_threads
from asrtool.settings.data import Features


class FeatureType(ABC):
    """Feature type, built with all settings of the features.

    Its own are ``features.type.settings``, whose class has `num_features`: a number, or a function of all settings of
    features.
    """

    @abstractmethod
    def __init__(self, features: Features) -> None:
        """Load models or tables."""

    @abstractmethod
    def extract(self, samples_S: np.ndarray) -> np.ndarray:
        """Return frames (T, F), float32 and finite, of samples (S,) in [-1, 1].

        A frame is `frame_length_ms` long, every `frame_shift_ms`.
        """


class Filterbank(FeatureType):
    """`num_mel_bins` log energies a frame."""

    def __init__(self, features: Features) -> None:
        self.sampling_rate_hz = features.sampling_rate_hz
        self.extractor: FeatureExtractor = Fbank(
            FbankConfig(
                sampling_rate=features.sampling_rate_hz,
                num_filters=features.num_features,
                frame_shift=features.frame_shift_ms / 1000,
                frame_length=features.frame_length_ms / 1000,
            )
        )

    def extract(self, samples_S: np.ndarray) -> np.ndarray:
        return np.asarray(self.extractor.extract(samples_S, self.sampling_rate_hz))


class PowerSpectrum(Filterbank):
    """Log power at each frequency of the discrete Fourier transform of a frame.

    As deepspeech.pytorch computes it: a Hamming window, no pre-emphasis, no zero padding.
    """

    def __init__(self, features: Features) -> None:
        self.sampling_rate_hz = features.sampling_rate_hz
        self.extractor = LogSpectrogram(
            LogSpectrogramConfig(
                sampling_rate=features.sampling_rate_hz,
                frame_shift=features.frame_shift_ms / 1000,
                frame_length=features.frame_length_ms / 1000,
                round_to_power_of_two=False,
                remove_dc_offset=False,
                preemph_coeff=0.0,
                window_type="hamming",
            )
        )


def frames_of(
    samples_S: np.ndarray, rate_hz: int, features: Features, extractor: FeatureType | None = None
) -> np.ndarray:
    """Return frames (T, F) of samples (S,) in [-1, 1], resampled if needed."""
    if rate_hz != features.sampling_rate_hz:
        samples_S = np.ascontiguousarray(Resample(rate_hz, features.sampling_rate_hz)(samples_S[None], rate_hz)[0])
    if len(samples_S) < features.frame_length_ms / 1000 * features.sampling_rate_hz:
        return np.zeros((0, features.num_features), np.float32)
    extractor = extractor or features.type.load()(features)
    with torch_threads(1):
        return extractor.extract(samples_S)
