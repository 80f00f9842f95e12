"""Settings of corpora and features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.settings import Choice, at_least, between, choice, choices, one_of


@dataclass(frozen=True)
class Mini:
    """Size of the synthetic corpus that stands in for releases that a site does not have."""

    train_hours: float = 1.0  # hours of speech, all training parts together
    test_minutes: float = 8.0  # minutes of speech, all parts of the test set together
    seed: int = 2000  # another seed, another corpus

    def __post_init__(self) -> None:
        between("mini.train_hours", self.train_hours, 0.005, 100)
        between("mini.test_minutes", self.test_minutes, 0.2, 600)


@dataclass(frozen=True)
class Data:
    """Which corpora train, tune and test the model, and what is left out."""

    train: tuple[Choice, ...] = choices("corpus")  # corpora to train on
    dev: tuple[Choice, ...] = choices("corpus")  # corpora with a development set; none holds out a part of train
    test: tuple[Choice, ...] = choices("corpus")  # corpora to test on, each decoded and scored apart
    dev_minutes: float = 5.0  # speech held out, whole conversations, whose speakers are in no training conversation
    max_duplicates: int = 300  # an utterance text is kept at most so often, as Kaldi does
    min_duration_s: float = 0.1  # seconds; shorter utterances are left out
    max_duration_s: float = 20.0  # seconds; longer utterances are left out
    bad_fraction: float = 0.01  # fail when more than this fraction of recordings or transcripts cannot be used
    segment_padding_s: float = 0.1  # test segments are widened so much on both sides, as Kaldi does

    def __post_init__(self) -> None:
        between("data.bad_fraction", self.bad_fraction, 0, 1)


@dataclass(frozen=True)
class Fbank:
    """Log-mel filterbanks."""

    num_mel_bins: int = 40  # values a frame

    def __post_init__(self) -> None:
        between("features.fbank.num_mel_bins", self.num_mel_bins, 8, 256)

    @property
    def num_features(self) -> int:
        """Values a frame."""
        return self.num_mel_bins


@dataclass(frozen=True)
class Spectrogram:
    """Log power spectra of `frame_length_ms`: a value for zero and for each whole number of periods in a frame."""

    def num_features(self, features: Features) -> int:
        """Values a frame."""
        return round(features.frame_length_ms / 1000 * features.sampling_rate_hz) // 2 + 1


@dataclass(frozen=True)
class Features:
    """What is computed of the audio, and how it is stored."""

    type: Choice = choice("features", "fbank")  # what a frame holds
    sampling_rate_hz: int = 8000  # of all audio
    frame_shift_ms: float = 10.0  # from one frame to the next
    frame_length_ms: float = 25.0  # window of a frame
    speeds: tuple[float, ...] = (0.9, 1.0, 1.1)  # speed perturbation of the training set
    cmvn: str = "speaker"  # mean and variance: per speaker, per utterance, global, or none
    storage: str = "lilcom"  # or shar
    shard_cuts: int = 500  # utterances a shard, which one process writes
    bad_fraction: float = 0.01  # fail when more than this fraction of utterances has no readable audio
    num_jobs: int = 0  # processes; 0 is one per core

    def __post_init__(self) -> None:
        one_of("features.cmvn", self.cmvn, ("speaker", "utterance", "global", "none"))
        one_of("features.storage", self.storage, ("lilcom", "shar"))
        between("features.bad_fraction", self.bad_fraction, 0, 1)
        between("features.sampling_rate_hz", self.sampling_rate_hz, 4000, 192000)
        between("features.frame_shift_ms", self.frame_shift_ms, 1, self.frame_length_ms)
        if 1.0 not in self.speeds or len(set(self.speeds)) < len(self.speeds):
            raise ValueError(f"features.speeds is {self.speeds}, expected 1.0 among them and none twice")
        for speed in self.speeds:
            between("features.speeds", speed, 0.5, 2)
        at_least(1, "features", self, "shard_cuts")
        at_least(0, "features", self, "num_jobs")

    @property
    def num_features(self) -> int:
        """Values a frame. Raises AsrtoolError where the settings of the type do not say it."""
        found: Any = getattr(self.type.settings, "num_features", None)
        num: int | None = found(self) if callable(found) else found
        if num is None:
            raise AsrtoolError(f"features.type is {self.type.name}: its Settings lacks num_features", "add a property")
        return num
