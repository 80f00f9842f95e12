"""Augment audio: tempo, reverberation, noise and band, in this order.

Each change is drawn by a random generator of one utterance in one epoch. Only tempo changes the length and times.
Features are computed anew in each epoch.

Letters in names: S samples, T frames, F features of a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from lhotse.audio.mixer import AudioMixer
from lhotse.augmentation import convolve1d

from asrtool.data.augment.sound_folder import open_sounds
from asrtool.data.features.cmvn import Cmvn
from asrtool.data.features.feature_type import FeatureType
from asrtool.data.storage.index import Utterance
from asrtool.data.storage.reader import FeatureReader, SampleReader
from asrtool.data.workers.processes import torch_threads
from asrtool.settings.data import Augment, Features

WINDOW_S = 0.03
SHIFT_S = 0.008  # either way: together more than a period of a low voice
RNG_STREAM = 1  # keeps these random numbers apart from others of the seed and epoch


def change_tempo(samples_S: np.ndarray, num_samples: int, rate_hz: int) -> np.ndarray:
    """Stretch samples to `num_samples`, float32, at the same pitch."""
    if num_samples == len(samples_S):
        return samples_S
    half, shift = round(WINDOW_S / 2 * rate_hz), round(SHIFT_S * rate_hz)
    window = np.hanning(2 * half + 1)[:-1].astype(np.float32)  # two that overlap by half add up to 1
    margin = 2 * half + shift
    padded = np.pad(samples_S, (margin, margin + 2 * half))
    out = np.zeros(num_samples + 4 * half, np.float32)
    begin = margin - half
    for i, at in enumerate(range(0, num_samples + half, half)):
        if i:
            wanted = margin - half + round(at * len(samples_S) / num_samples)
            begin = _best_begin(padded, wanted, begin + half, 2 * half, shift)
        out[at : at + 2 * half] += window * padded[begin : begin + 2 * half]
    return out[half : half + num_samples]


def _best_begin(padded: np.ndarray, wanted: int, natural: int, size: int, shift: int) -> int:
    """Return the most similar `size` samples at most `shift` from `wanted`.

    Similarity is correlation over the norm of the candidate: a loud one would win by its loudness.
    """
    first = max(0, wanted - shift)
    region = padded[first : wanted + shift + size]
    like = np.correlate(region, padded[natural : natural + size], "valid")
    energy = np.cumsum(np.concatenate([[0.0], region.astype(np.float64) ** 2]))
    norm = np.sqrt(np.maximum(energy[size:] - energy[:-size], 1e-9))
    return first + int(np.argmax(like / norm))


Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]
FILTER_ORDER = 4
MAX_EDGE = 0.499  # highest edge, as a fraction of the sampling rate: the Nyquist rate is 0.5


class Augmentation:
    """Augmentation by settings; other processes get it by pickle."""

    def __init__(self, settings: Augment, rate_hz: int) -> None:
        """Open the folders of sounds; AsrtoolError if one is missing, empty or unusable."""
        self._settings = settings
        self._rate_hz = rate_hz
        sounds = {key: open_sounds(Path(folder), key, rate_hz) for key, folder in settings.folders.items()}
        self._rooms = sounds.get("augment.reverb_dir", [])
        self._noises = sounds.get("augment.noise_dir", [])

    def change(self, samples_S: np.ndarray, num_samples: int, random: np.random.Generator) -> np.ndarray:
        """Return `num_samples` augmented samples, float32 in [-1, 1].

        It is the array itself if nothing is drawn.
        """
        changed_S = change_tempo(samples_S, num_samples, self._rate_hz)
        for prob, change in self._changes():
            if random.random() < prob:
                changed_S = _in_range(change(changed_S, random))
        return changed_S

    def _changes(self) -> list[tuple[float, Change]]:
        settings = self._settings
        return [
            (settings.reverb_prob if self._rooms else 0.0, self._reverberate),
            (settings.noise_prob if self._noises else 0.0, self._add_noise),
            (settings.band_prob, self._limit_band),
        ]

    def _reverberate(self, samples_S: np.ndarray, random: np.random.Generator) -> np.ndarray:
        room = self._rooms[int(random.integers(len(self._rooms)))]
        return reverberate(samples_S, room.read(0, room.num_samples))

    def _add_noise(self, samples_S: np.ndarray, random: np.random.Generator) -> np.ndarray:
        noise = self._noises[int(random.integers(len(self._noises)))]
        begin = int(random.integers(noise.num_samples))
        low_db, high_db = self._settings.snr_db
        snr_db = random.uniform(low_db, high_db)
        return add_noise(samples_S, noise.read(begin, len(samples_S)), snr_db, self._rate_hz)

    def _limit_band(self, samples_S: np.ndarray, random: np.random.Generator) -> np.ndarray:
        low_hz = random.uniform(0, self._settings.band_hz[0])
        high_hz = random.uniform(self._settings.band_hz[1], self._rate_hz / 2)
        return limit_band(samples_S, low_hz, high_hz, self._rate_hz)


def reverberate(samples_S: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Convolve with an impulse response; same length and energy, no delay."""
    wet_S = convolve1d(torch.from_numpy(samples_S), torch.from_numpy(room)).numpy()
    direct = int(np.abs(room).argmax())
    wet_S = wet_S[direct : direct + len(samples_S)]
    energy, before = float(np.sum(wet_S**2)), float(np.sum(samples_S**2))
    return wet_S * np.float32(np.sqrt(before / energy)) if energy else samples_S


def add_noise(samples_S: np.ndarray, noise_S: np.ndarray, snr_db: float, rate_hz: int) -> np.ndarray:
    """Add noise at a mean power `snr_db` below the utterance's.

    A digitally silent utterance stays as it is.
    """
    if not samples_S.any():
        return samples_S
    mixer = AudioMixer(samples_S[None], rate_hz)
    mixer.add_to_mix(noise_S[None], snr_db)
    mixed_S: np.ndarray = mixer.mixed_audio[0]
    return mixed_S


def limit_band(samples_S: np.ndarray, low_hz: float, high_hz: float, rate_hz: int) -> np.ndarray:
    """Limit samples to a band by Butterworth filters."""
    from scipy.signal import butter, sosfilt  # takes a second, and starts threads: learners are forked without any

    for edge_hz, kind in ((low_hz, "highpass"), (min(high_hz, MAX_EDGE * rate_hz), "lowpass")):
        if edge_hz >= 1:
            samples_S = sosfilt(butter(FILTER_ORDER, edge_hz, kind, output="sos", fs=rate_hz), samples_S)
    return samples_S.astype(np.float32)


def _in_range(samples_S: np.ndarray) -> np.ndarray:
    """Scale down samples outside [-1, 1]."""
    peak = float(np.abs(samples_S).max(initial=0.0))
    return samples_S / np.float32(peak) if peak > 1 else samples_S


class EpochCopy(NamedTuple):
    """Utterance in an epoch."""

    position: int  # in the index
    epoch: int
    num_frames: int  # at the tempo of the epoch


class AugmentedReader:
    """Reader of the utterances of a set as augmented in an epoch.

    A pure function of the seed, the epoch and the place of an utterance in the index: neither the order of reading nor
    which process reads has an influence. torch computes in one thread.
    """

    def __init__(
        self, directory: Path, features: Features, augmentation: Augmentation, seed: int, index: Sequence[Utterance]
    ) -> None:
        """Take the `features` of the set; AsrtoolError as FeatureReader."""
        self._stored = FeatureReader(directory, "none", index=index)
        self._samples = SampleReader(directory, index, features.sampling_rate_hz)
        self._cmvn = Cmvn(directory, features.cmvn)
        self._extractor: FeatureType = features.type.load()(features)
        self._augmentation = augmentation
        self._seed = seed
        self._index = index

    def read(self, copy: EpochCopy) -> np.ndarray:
        """Return normalised features (num_frames, F), stored ones if nothing changed."""
        utterance, stored_TF = self._index[copy.position], self._stored.read(copy.position)
        samples_S = self._samples.read(copy.position)
        num_samples = len(samples_S)
        if copy.num_frames != utterance.num_frames:
            num_samples = max(1, round(num_samples * copy.num_frames / utterance.num_frames))
        random = np.random.default_rng((self._seed, copy.epoch, copy.position, RNG_STREAM))
        with torch_threads(1):
            changed_S = self._augmentation.change(samples_S, num_samples, random)
            if changed_S is samples_S:
                return self._cmvn.normalise(utterance.speaker, stored_TF)
            feats_TF = _fit(self._extractor.extract(changed_S), copy.num_frames)
        return self._cmvn.normalise_changed(utterance.speaker, feats_TF, stored_TF)


def _fit(feats_TF: np.ndarray, num_frames: int) -> np.ndarray:
    """Drop or repeat the last frame if rounding changed the length by one."""
    missing = num_frames - len(feats_TF)
    return np.pad(feats_TF, ((0, missing), (0, 0)), "edge") if missing > 0 else feats_TF[:num_frames]
