"""Log-mel filterbanks and power spectra by lhotse, with an energy floor."""

from __future__ import annotations

import numpy as np
from lhotse import Fbank, FbankConfig
from lhotse.features.kaldi.extractors import LogSpectrogram, LogSpectrogramConfig

from asrtool.data.features.feature_type import FeatureType
from asrtool.settings.data import Features


class Filterbank(FeatureType):
    """`num_mel_bins` log energies a frame."""

    def __init__(self, features: Features) -> None:
        self.sampling_rate_hz = features.sampling_rate_hz
        self.extractor = Fbank(
            FbankConfig(
                sampling_rate=features.sampling_rate_hz,
                num_filters=features.num_features,
                frame_shift=features.frame_shift_ms / 1000,
                frame_length=features.frame_length_ms / 1000,
            )
        )

    def extract(self, samples_S: np.ndarray) -> np.ndarray:
        feats_TF: np.ndarray = self.extractor.extract(samples_S, self.sampling_rate_hz)
        return feats_TF


class PowerSpectrum(FeatureType):
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

    def extract(self, samples_S: np.ndarray) -> np.ndarray:
        feats_TF: np.ndarray = self.extractor.extract(samples_S, self.sampling_rate_hz)
        return feats_TF
