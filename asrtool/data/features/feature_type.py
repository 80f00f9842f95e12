"""Feature types: samples to frames, by lhotse or, without torch, by NumPy."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import ThreadpoolController

from asrtool.data.workers.processes import torch_threads
from asrtool.settings.data import Features

if TYPE_CHECKING:
    from lhotse import FeatureExtractor


# Of NumpyFilterbank, as lhotse's defaults
LOW_HZ, BELOW_HALF_HZ = 20.0, 400.0  # edges of the filters: from zero, and below half the sampling rate
PREEMPHASIS = np.float32(0.97)


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

    def resample(self, samples_S: np.ndarray, rate_hz: int, wanted_hz: int) -> np.ndarray:
        """Return samples (S,) at the rate `wanted_hz`, by lhotse."""
        from lhotse.augmentation import Resample

        return np.ascontiguousarray(Resample(rate_hz, wanted_hz)(samples_S[None], rate_hz)[0])


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


class NumpyFilterbank(FeatureType):
    """Filterbank by NumPy; agrees with lhotse's up to rounding."""

    def __init__(self, features: Features) -> None:
        self.blas = ThreadpoolController().select(user_api="blas")
        rate_hz, num_bins = features.sampling_rate_hz, features.num_features
        self.shift = int(rate_hz * features.frame_shift_ms / 1000)
        self.length = int(rate_hz * features.frame_length_ms / 1000)
        self.fft_size = 1 << (self.length - 1).bit_length()
        hann_S = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.length) / (self.length - 1))
        self.window_S = (hann_S**0.85).astype(np.float32)
        mels_K = _mel(np.arange(self.fft_size // 2 + 1) * rate_hz / self.fft_size)
        edges_E = np.linspace(_mel(LOW_HZ), _mel(rate_hz / 2 - BELOW_HALF_HZ), num_bins + 2)
        rising_KE = (mels_K[:, None] - edges_E[:-1]) / np.diff(edges_E)
        self.mel_KF = np.maximum(0.0, np.minimum(rising_KE[:, :-1], 1 - rising_KE[:, 1:])).astype(np.float32)

    def extract(self, samples_S: np.ndarray) -> np.ndarray:
        num_frames = (len(samples_S) + self.shift // 2) // self.shift
        before = (self.length - self.shift) // 2  # as lhotse; at 44.1 kHz a sample less than Kaldi
        after = max(0, (num_frames - 1) * self.shift + self.length - before - len(samples_S))
        padded_S = np.pad(samples_S, (before, after), mode="symmetric")
        frames_TS = np.lib.stride_tricks.sliding_window_view(padded_S, self.length)[:: self.shift][:num_frames]
        frames_TS = frames_TS - frames_TS.mean(axis=1, keepdims=True)
        last_TS = np.concatenate([frames_TS[:, :1], frames_TS[:, :-1]], axis=1)
        spectrum_TK = np.fft.rfft((frames_TS - PREEMPHASIS * last_TS) * self.window_S, self.fft_size)
        power_TK = spectrum_TK.real**2 + spectrum_TK.imag**2
        with self.blas.limit(limits=1):  # waiting threads need several times the CPU time of so small a product
            energy_TF = power_TK.astype(np.float32) @ self.mel_KF
        return np.log(np.maximum(energy_TF, np.finfo(np.float32).eps))

    def resample(self, samples_S: np.ndarray, rate_hz: int, wanted_hz: int) -> np.ndarray:
        """Return samples (S,) at the rate `wanted_hz`, as lhotse without torchaudio.

        That is by scipy.signal.resample_poly, whose import takes longer than to recognise a short file. Output n has
        the weights n * down % up, n * down % up + up, ... of a low-pass filter.
        """
        divisor = math.gcd(rate_hz, wanted_hz)
        up, down = wanted_hz // divisor, rate_hz // divisor
        half = 10 * max(up, down)
        lowpass_K = np.sinc(np.arange(-half, half + 1) / max(up, down)) * np.kaiser(2 * half + 1, 5.0)
        lowpass_K *= up / lowpass_K.sum()
        num_weights = 2 * half // up + 1  # of an output
        weights_WU = np.pad(lowpass_K, (0, num_weights * up - len(lowpass_K))).reshape(num_weights, up)
        weights_WU = weights_WU[::-1].astype(samples_S.dtype)
        padded_S = np.pad(samples_S, num_weights + 1)
        seen_SW = np.lib.stride_tricks.sliding_window_view(padded_S, num_weights)
        resampled_S = np.empty(-(-len(samples_S) * up // down), samples_S.dtype)
        for phase in range(min(up, len(resampled_S))):
            last, column = divmod(phase * down + half, up)
            outputs = resampled_S[phase::up]
            outputs[:] = seen_SW[last + 2 :: down][: len(outputs)] @ weights_WU[:, column]
        return resampled_S


def _mel(frequency_hz: Any) -> Any:
    """Return the place on the mel scale as Kaldi computes it."""
    return 1127 * np.log1p(np.asarray(frequency_hz) / 700)


def frames_of(
    samples_S: np.ndarray, rate_hz: int, features: Features, extractor: FeatureType | None = None
) -> np.ndarray:
    """Return frames (T, F) of samples (S,) in [-1, 1], resampled if needed."""
    extractor = extractor or features.type.load()(features)
    if rate_hz != features.sampling_rate_hz:
        samples_S = extractor.resample(samples_S, rate_hz, features.sampling_rate_hz)
    if len(samples_S) < features.frame_length_ms / 1000 * features.sampling_rate_hz:
        return np.zeros((0, features.num_features), np.float32)
    with torch_threads(1):
        return extractor.extract(samples_S)
