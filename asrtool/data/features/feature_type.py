"""Feature types: samples to frames, by lhotse or, without torch, by Kaldi."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from asrtool.data.workers.processes import torch_threads
from asrtool.errors import require
from asrtool.settings.data import Features

if TYPE_CHECKING:
    from lhotse import FeatureExtractor


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
        from lhotse import Fbank, FbankConfig

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
        from lhotse.features.kaldi.extractors import LogSpectrogram, LogSpectrogramConfig

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


class NativeFilterbank(FeatureType):
    """Filterbank by kaldi-native-fbank, which agrees with lhotse's up to rounding."""

    def __init__(self, features: Features) -> None:
        require("kaldi_native_fbank", "a network as ONNX", "pip install 'asrtool[onnx]'")
        from kaldi_native_fbank import FbankOptions

        self.options = FbankOptions()
        frame = self.options.frame_opts
        frame.samp_freq, frame.dither, frame.snip_edges = features.sampling_rate_hz, 0.0, False
        frame.frame_shift_ms, frame.frame_length_ms = features.frame_shift_ms, features.frame_length_ms
        self.options.mel_opts.num_bins = features.num_features
        self.options.mel_opts.high_freq = -400.0  # below half the sampling rate, as lhotse

    def extract(self, samples_S: np.ndarray) -> np.ndarray:
        from kaldi_native_fbank import OnlineFbank

        filterbank = OnlineFbank(self.options)
        filterbank.accept_waveform(self.options.frame_opts.samp_freq, samples_S)
        filterbank.input_finished()
        return np.stack([filterbank.get_frame(t) for t in range(filterbank.num_frames_ready)])


def frames_of(
    samples_S: np.ndarray, rate_hz: int, features: Features, extractor: FeatureType | None = None
) -> np.ndarray:
    """Return frames (T, F) of samples (S,) in [-1, 1], resampled if needed."""
    if rate_hz != features.sampling_rate_hz:
        from lhotse.augmentation import Resample

        samples_S = np.ascontiguousarray(Resample(rate_hz, features.sampling_rate_hz)(samples_S[None], rate_hz)[0])
    if len(samples_S) < features.frame_length_ms / 1000 * features.sampling_rate_hz:
        return np.zeros((0, features.num_features), np.float32)
    extractor = extractor or features.type.load()(features)
    with torch_threads(1):
        return extractor.extract(samples_S)
