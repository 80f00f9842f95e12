"""Settings of corpora and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.lang import NOT_IN_WORDS
from asrtool.settings.schema import (
    Choice,
    at_least,
    between,
    check_executor,
    choice,
    choices,
    one_of,
    path,
    positive,
    releases_of,
)

if TYPE_CHECKING:
    from asrtool.settings.config import Config

RATES_HZ = (4000, 192_000)  # lowest and highest that features are computed at
MIN_SPEED, MAX_SPEED = 0.5, 2.0  # speeds that copies may have
TEXT_RULES = ("english", "unicode", "characters", "none")


@dataclass(frozen=True)
class Mini:
    """Size of the synthetic corpus, which replaces missing releases."""

    train_hours: float = 1.0  # hours of speech, all training parts together
    test_minutes: float = 8.0  # minutes of speech, all parts of the test set together
    seed: int = 2000  # another seed, another corpus
    whole_turns: bool = False  # a training utterance is a turn of up to three sentences, with the pauses between them

    def __post_init__(self) -> None:
        between("mini.train_hours", self.train_hours, 0.005, 100)
        between("mini.test_minutes", self.test_minutes, 0.2, 600)


@dataclass(frozen=True)
class Mix:
    """Parsed data.mix: the rule for each corpus's fraction of an epoch."""

    rule: str = "utterances"  # or hours, temperature, given
    temperature: float = 1.0
    weights: Mapping[str, float] = field(default_factory=dict)  # of corpora, by their names; any sum

    @classmethod
    def parse(cls, text: str) -> Mix:
        """Parse ``utterances``, ``hours``, ``temperature:T``, or ``NAME:WEIGHT,...``.

        Raises ValueError for anything else.
        """
        if text in ("utterances", "hours"):
            return cls(text)
        pairs = [item.strip().rpartition(":") for item in text.split(",")]
        try:
            weights = {name: float(number) for name, _, number in pairs}
        except ValueError:
            weights = {}
        if "" in weights or len(weights) < len(pairs) or not all(0 <= w < float("inf") for w in weights.values()):
            forms = "utterances, hours, temperature:2, or a weight of 0 or more for each corpus, as NAME:0.7,OTHER:0.3"
            raise ValueError(f"data.mix is {text!r}, expected {forms}")
        if not any(weights.values()):
            raise ValueError(f"data.mix is {text!r}, expected {'a number' if len(pairs) == 1 else 'a weight'} above 0")
        if weights.keys() == {"temperature"}:
            return cls("temperature", weights["temperature"])
        return cls("given", weights=weights)

    @property
    def is_plain(self) -> bool:
        """True if an epoch is each utterance of all corpora once."""
        return self.rule == "utterances"

    def check_names(self, names: Iterable[str]) -> None:
        """Raise ValueError unless given weights name exactly the corpora `names`."""
        names = set(names)
        if self.rule != "given" or self.weights.keys() == names:
            return
        unknown, missing = sorted(self.weights.keys() - names), sorted(names - self.weights.keys())
        found = f"weighs {', '.join(unknown)}, not trained on" if unknown else f"has no weight for {', '.join(missing)}"
        raise ValueError(f"data.mix {found}; expected a weight for each of {', '.join(sorted(names))}")


@dataclass(frozen=True)
class Data:
    """Corpora to train, tune and test on, and what is left out."""

    train: tuple[Choice, ...] = choices("corpus")  # corpora to train on
    dev: tuple[Choice, ...] = choices("corpus")  # corpora with a development set; none holds out a part of train
    test: tuple[Choice, ...] = choices("corpus")  # corpora to test on, each decoded and scored apart
    mix: str = "utterances"  # shares of corpora, by utterances, hours, temperature:T, or NAME:WEIGHT,NAME:WEIGHT
    text_rules: str = "english"  # of own data, published corpora and lm.extra_text; or unicode, characters, none
    word_marks: str = "'"  # punctuation that the rules unicode keep inside a word; any other parts words
    allow_pipes: bool = False  # commands of wav.scp that need a shell are run by one; others run without, anyway
    dev_minutes: float = 5.0  # speech held out, whole conversations, whose speakers are in no training conversation
    dev_fold: int = 0  # which part is held out: 1, 2, ... are conversations that none before has, for cross-validation
    max_duplicates: int = 300  # a text is trained on at most so often, as Kaldi does; language models read all
    min_duration_s: float = 0.1  # seconds; shorter utterances are not trained on
    max_duration_s: float = 20.0  # seconds; longer utterances are not trained on
    cut_long: bool = False  # these are cut at pauses instead, which a model of the others finds by forced alignment
    uncertain: str = "keep"  # or drop: utterances with words that their transcriber doubts, (( )), are not trained on
    bad_fraction: float = 0.01  # fail if more than this fraction of recordings or transcripts, and over 1, is unusable
    same_audio: str = "ignore"  # of one sound in two utterances: ignore, report, or drop from training what is scored
    segment_padding_s: float = 0.1  # test segments are widened so much on both sides, as Kaldi does

    def __post_init__(self) -> None:
        positive("data", self, "dev_minutes", "max_duplicates", "max_duration_s")
        at_least(0, "data", self, "dev_fold", "min_duration_s", "segment_padding_s")
        one_of("data.text_rules", self.text_rules, TEXT_RULES)
        if any(mark.isalnum() or mark.isspace() or mark in NOT_IN_WORDS for mark in self.word_marks):
            raise ValueError(f"data.word_marks is {self.word_marks!r}, expected punctuation but {NOT_IN_WORDS}")
        one_of("data.uncertain", self.uncertain, ("keep", "drop"))
        between("data.bad_fraction", self.bad_fraction, 0, 1)
        one_of("data.same_audio", self.same_audio, ("ignore", "report", "drop"))
        Mix.parse(self.mix)

    def check(self, config: Config) -> None:
        """Check that no training corpus is a part of another, and each has a weight."""
        names = [name for name in dict.fromkeys(c.name for c in self.train) if name in registry.names("corpus")]
        for number, name in enumerate(names):
            for before in names[:number]:
                if releases_of(name) & releases_of(before):
                    raise ValueError(f"data.train has speech twice, in {before} and {name}, expected one of them")
        if self.mixing.rule == "given":
            self.mixing.check_names(corpus.load().name for corpus in self.train)

    @property
    def mixing(self) -> Mix:
        """Return the parsed `mix`."""
        return Mix.parse(self.mix)


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
    """Log power spectra of `frame_length_ms`: one value for each whole period count."""

    def num_features(self, features: Features) -> int:
        """Return the values a frame; ValueError if the sampling rate is unknown."""
        if not features.sampling_rate_hz:
            raise ValueError("features.sampling_rate_hz is 0 but features.type spectrogram needs a rate, expected one")
        return int(features.frame_length_ms / 1000 * features.sampling_rate_hz) // 2 + 1  # whole samples, as lhotse


@dataclass(frozen=True)
class Features:
    """Features of audio, and their storage."""

    no_part: ClassVar[tuple[str, ...]] = ("num_jobs", "executor")  # keys that do not change the outputs of a stage

    type: Choice = choice("features", "fbank")  # what a frame holds
    sampling_rate_hz: int = 8000  # of all audio; 0 takes that of most hours of training recordings
    resample: bool = False  # audio of another rate is resampled when it is read; otherwise it is an error
    frame_shift_ms: float = 10.0  # from one frame to the next
    frame_length_ms: float = 25.0  # window of a frame
    speeds: tuple[float, ...] = (0.9, 1.0, 1.1)  # of the training set, a copy at each; []: as many as suit the speech
    cmvn: str = "speaker"  # mean and variance: per speaker, per utterance, global, or none
    storage: str = "lilcom"  # or shar; flac: audio, of which features are computed whenever they are read
    keep_audio: bool = False  # whether samples of the training set are kept beside its features, for [augment]
    shard_cuts: int = 500  # utterances a shard, which one process writes
    bad_fraction: float = 0.01  # fail if more than this fraction of utterances, and over 1, has no readable audio
    num_jobs: int = 0  # processes; 0 is one per core
    executor: str = "local"  # shards are computed by local processes, or dask:ADDRESS, the workers of a Dask scheduler

    def __post_init__(self) -> None:
        check_executor("features.executor", self.executor)
        one_of("features.cmvn", self.cmvn, ("speaker", "utterance", "global", "none"))
        one_of("features.storage", self.storage, ("lilcom", "shar", "flac"))
        between("features.bad_fraction", self.bad_fraction, 0, 1)
        if self.sampling_rate_hz:
            between("features.sampling_rate_hz", self.sampling_rate_hz, *RATES_HZ)
        at_least(1, "features", self, "frame_length_ms")
        between("features.frame_shift_ms", self.frame_shift_ms, 1, self.frame_length_ms)
        if (self.speeds and 1.0 not in self.speeds) or len(set(self.speeds)) < len(self.speeds):
            raise ValueError(f"features.speeds is {self.speeds}, expected 1.0 among them and none twice")
        for speed in self.speeds:
            between("features.speeds", speed, MIN_SPEED, MAX_SPEED)
        at_least(1, "features", self, "shard_cuts")
        at_least(0, "features", self, "num_jobs")

    def check(self, config: Config) -> None:
        """Check that layers over neighbouring bins get no deltas."""
        encoder = config.model.encoder
        if config.model.deltas and getattr(encoder.settings, "over_bins", False):
            found = f"model.deltas is {config.model.deltas}"
            found += f" but model.encoder {encoder.name} convolves over the bins of a frame"
            raise ValueError(f"{found}, expected lstm with conv_channels 0, or model.deltas 0")

    @property
    def num_features(self) -> int:
        """Return the values of a frame; AsrtoolError if the type does not give them."""
        found: Any = getattr(self.type.settings, "num_features", None)
        num: int | None = found(self) if callable(found) else found
        if num is None:
            raise AsrtoolError(f"features.type is {self.type.name}: its Settings lacks num_features", "add a property")
        return num


@dataclass(frozen=True)
class Remote:
    """Feature sets at an address, http, https or s3: what of them is kept on the disk."""

    no_part: ClassVar[tuple[str, ...]] = ("cache_dir", "cache_gib")

    cache_dir: str = path()  # folder for it, which the learners of a node share; empty: ~/.cache/asrtool
    cache_gib: float = 100.0  # GiB of shards; those used longest ago go. A learner reads 8 and fetches 8 more or longer

    def __post_init__(self) -> None:
        between("remote.cache_gib", self.cache_gib, 0, 1e6)


@dataclass(frozen=True)
class Augment:
    """Augmentation of training audio, drawn in each epoch; needs features.keep_audio."""

    tempo: tuple[float, ...] = (1.0, 1.0)  # slowest and fastest tempo, at the same pitch
    reverb_dir: str = path()  # folder of room impulse responses; empty: no reverberation
    reverb_prob: float = 0.5  # of an utterance to get one of them
    noise_dir: str = path()  # folder of recordings of noise, music or babble; empty: no noise
    noise_prob: float = 0.5  # of an utterance to get a stretch of one of them
    snr_db: tuple[float, ...] = (5.0, 20.0)  # lowest and highest ratio of speech to noise
    band_prob: float = 0.0  # of an utterance to be limited to a band
    band_hz: tuple[float, ...] = (300.0, 3400.0)  # narrowest band; its edges are drawn between these and all there is

    def __post_init__(self) -> None:
        for key in ("reverb_prob", "noise_prob", "band_prob"):
            between(f"augment.{key}", getattr(self, key), 0, 1)
        for key in ("tempo", "snr_db", "band_hz"):
            value = getattr(self, key)
            if len(value) != 2 or value[0] > value[1]:
                raise ValueError(f"augment.{key} is {list(value)}, expected two numbers, the lower one first")
        for tempo in self.tempo:
            between("augment.tempo", tempo, 0.5, 2)
        between("augment.band_hz", self.band_hz[0], 1, 2000)

    @property
    def stretches(self) -> bool:
        """True if utterances change their length."""
        return self.tempo != (1.0, 1.0)

    @property
    def folders(self) -> dict[str, str]:
        """Key -> folder, of those that are drawn from."""
        folders = {}
        if self.reverb_dir and self.reverb_prob:
            folders["augment.reverb_dir"] = self.reverb_dir
        if self.noise_dir and self.noise_prob:
            folders["augment.noise_dir"] = self.noise_dir
        return folders

    @property
    def active(self) -> bool:
        """True if anything is changed."""
        return bool(self.stretches or self.folders or self.band_prob)

    def check(self, config: Config) -> None:
        """Check against the features; see check_features."""
        self.check_features(config.features)

    def check_features(self, features: Features) -> None:
        """Raise ValueError if audio is not kept, or its rate does not fit."""
        if self.active and not features.keep_audio:
            raise ValueError("[augment] changes audio but features.keep_audio is false, expected true")
        rate_hz = features.sampling_rate_hz
        if rate_hz and self.band_prob and self.band_hz[1] >= rate_hz / 2:  # a rate of 0 is checked with the features
            raise ValueError(f"augment.band_hz ends at {self.band_hz[1]:g}, expected less than {rate_hz / 2:g}")
