"""Settings of training: masks, optimisation, averaging, neural language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from asrtool.settings.schema import Choice, at_least, between, choice, choices, one_of, path, positive

if TYPE_CHECKING:
    from asrtool.settings.config import Config


OVERFITTING_PATIENCE = 2  # epochs without a lower loss on dev; a single one may be chance
OVERFITTING_RISE = 1.1  # of the loss on dev over its lowest


@dataclass(frozen=True)
class SpecAugment:
    """Masks on the features of training batches."""

    num_freq_masks: int = 2  # masks of bins an utterance
    max_freq_bins: int = 8  # bins of a mask
    num_time_masks: int = 2  # masks of frames an utterance
    max_time_frames: int = 20  # frames of a mask
    max_time_fraction: float = 0.15  # of the utterance, all time masks together

    def __post_init__(self) -> None:
        at_least(0, "specaugment", self, "num_freq_masks", "max_freq_bins", "num_time_masks", "max_time_frames")
        between("specaugment.max_time_fraction", self.max_time_fraction, 0, 1)

    def check(self, config: Config) -> None:
        """Check that masks fit into a frame."""
        if self.max_freq_bins > config.features.num_features:
            raise ValueError(
                f"specaugment.max_freq_bins is {self.max_freq_bins} but a frame has {config.features.num_features}"
                f" values ([features.{config.features.type.table}])"
            )


@dataclass(frozen=True)
class Optimisation:
    """Optimisation of weights, independent of model and data."""

    section: ClassVar[str] = "train"

    seed: int = 1  # of weights, batches, masks and dropout
    num_epochs: int = 5  # passes over the training set; 0 of an acoustic model: as many as suit the speech
    early_stop: int = 0  # epochs without a lower loss on dev than before, after which training ends; 0: it does not
    optimizer: Choice = choice("optimizer", "adamw")  # how gradients change the weights
    peak_lr: float = 0.002  # highest learning rate
    schedule: Choice = choice("schedule", "one-cycle")  # learning rate over the training
    clip_norm: float = 5.0  # gradient norm
    ema_decay: float = 0.0  # a step, of the moving average of the weights, which then is evaluated and kept; 0: none
    precision: str = "auto"  # of matrix products: fp32, bf16, fp16, or auto: bf16 where CPU or GPU has it, else fp32
    num_threads: int = 0  # torch threads; 0 leaves torch's choice
    log_every_steps: int = 10  # steps from one line of metrics to the next
    loggers: tuple[Choice, ...] = choices("logger", "tensorboard")  # what gets the metrics beside metrics.jsonl
    save_every_steps: int = 100  # steps of a learner from one checkpoint to the next; one more after each epoch
    save_every_minutes: float = 0.0  # to one more checkpoint, to resume from alone: it is never averaged; 0 is none
    keep_last: int = 5  # checkpoints by steps and of epochs kept for their age
    keep_best: int = 2  # checkpoints kept for their loss on dev

    def __post_init__(self) -> None:
        one_of(f"{self.section}.precision", self.precision, ("auto", "fp32", "bf16", "fp16"))
        positive(self.section, self, "peak_lr", "clip_norm")
        at_least(1, self.section, self, "log_every_steps", "keep_last")
        at_least(0, self.section, self, "save_every_minutes", "save_every_steps", "seed", "num_threads", "keep_best")
        at_least(0, self.section, self, "early_stop")
        if self.early_stop and not self.keep_best:
            what = f"{self.section}.early_stop is {self.early_stop} but {self.section}.keep_best is 0"
            raise ValueError(f"{what}, so the best epoch might not be kept: set it to 1 or more")
        between(f"{self.section}.ema_decay", self.ema_decay, 0, 0.999999)


@dataclass(frozen=True)
class Train(Optimisation):
    """Training of the acoustic model."""

    batch_s: float = 120.0  # seconds of speech in a batch, padding included; 0: as many as suit the speech
    max_batch_s: float = 0.0  # of those, computed at once; gradients add up; 0: all, on a GPU as much as fits
    pipeline_stages: int = 1  # devices of a learner, with neighbouring layers of the model on each
    micro_batches: int = 8  # of a batch, which pass the stages in turn, if there are several
    source: Choice = choice("source", "shards")  # where the batches of the training set come from
    loader_processes: int = 0  # that decode features for a learner; 0: a thread of the learner does
    sequence_noise: float = 0.0  # fraction of the utterances of a batch that another one of it is added to
    sequence_noise_weight: float = 0.4  # of its energies
    init_model: str = path()  # model file whose weights training begins with; empty draws them
    frozen: tuple[str, ...] = ()  # names of parameters that stay as they are, with * for any part

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, "train", self, "loader_processes", "max_batch_s", "num_epochs", "batch_s")
        at_least(1, "train", self, "pipeline_stages", "micro_batches")
        positive("train", self, "sequence_noise_weight")
        between("train.sequence_noise", self.sequence_noise, 0, 1)


@dataclass(frozen=True)
class Shards:
    """Shards of features with an index, each utterance once an epoch."""

    files: ClassVar[tuple[str, ...]] = ("index.jsonl", "cmvn.npz")  # of the training set, that say what is trained on

    cache_gib: float = 4.0  # features held in memory when they all fit

    def __post_init__(self) -> None:
        at_least(0, "train.shards", self, "cache_gib")


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay."""

    weight_decay: float = 0.01  # of matrices, not of biases and gains

    def __post_init__(self) -> None:
        at_least(0, "adamw", self, "weight_decay")


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with momentum."""

    momentum: float = 0.9  # fraction of the last update that is kept
    nesterov: bool = False  # whether the gradient counts as if the momentum had been followed first
    weight_decay: float = 0.01  # of matrices, not of biases and gains

    def __post_init__(self) -> None:
        at_least(0, "sgd", self, "momentum", "weight_decay")
        if self.nesterov and not self.momentum:
            raise ValueError("sgd.nesterov is true with a momentum of 0, expected one above 0")


@dataclass(frozen=True)
class OneCycle:
    """A line up to the peak, then half a cosine down."""

    warmup_fraction: float = 0.15  # of all samples

    def __post_init__(self) -> None:
        between("one-cycle.warmup_fraction", self.warmup_fraction, 0, 0.9)


@dataclass(frozen=True)
class InverseSqrt:
    """A line up to the peak, then 1 / sqrt(progress)."""

    warmup_fraction: float = 0.15  # of all samples; more than 0

    def __post_init__(self) -> None:
        between("inverse-sqrt.warmup_fraction", self.warmup_fraction, 1e-6, 0.9)


@dataclass(frozen=True)
class Halving:
    """A line up to the peak, a time at the peak, then halved every two epochs."""

    warmup_fraction: float = 0.15  # of all samples
    hold_fraction: float = 0.0  # of all samples, at the peak after the warm-up

    def __post_init__(self) -> None:
        between("halving.warmup_fraction", self.warmup_fraction, 0, 0.9)
        between("halving.hold_fraction", self.hold_fraction, 0, round(1 - self.warmup_fraction, 9))


@dataclass(frozen=True)
class Plateau:
    """A line up to the peak, then lower whenever the loss on dev falls no more."""

    needs_dev: ClassVar[bool] = True  # the schedule gets the losses on dev as well

    warmup_fraction: float = 0.05  # of all samples
    factor: float = 0.5  # that the rate is multiplied by
    patience: int = 2  # evaluations in a row without a lower loss than before, upon which it is

    def __post_init__(self) -> None:
        between("plateau.warmup_fraction", self.warmup_fraction, 0, 0.9)
        between("plateau.factor", self.factor, 0, 1)
        at_least(1, "plateau", self, "patience")


@dataclass(frozen=True)
class Average:
    """Checkpoints to average into the model that decodes."""

    by: str = "last"  # or best, by loss on dev
    num: int = 3  # checkpoints

    def __post_init__(self) -> None:
        one_of("average.by", self.by, ("last", "best"))
        at_least(1, "average", self, "num")

    def check(self, config: Config) -> None:
        """Check that enough checkpoints are kept."""
        kept = {"last": config.train.keep_last, "best": config.train.keep_best}[self.by]
        if self.num > kept:
            raise ValueError(f"average.num is {self.num} but train.keep_{self.by} is {kept}")


@dataclass(frozen=True)
class Nnlm(Optimisation):
    """Word language model, for rescoring, and its training."""

    section: ClassVar[str] = "nnlm"

    enabled: bool = False  # whether it is trained, and used by method rescore
    encoder: Choice = choice("word-encoder", "word-lstm")  # words to hidden rows
    output: Choice = choice("word-output", "softmax")  # hidden rows to the probabilities of the next word
    repeats: int = 3  # times an epoch that the text of the training conversations is read beside lm.extra_text's
    batch_words: int = 2000  # in a batch, padding included
    num_epochs: int = 10  # passes over the text
    clip_norm: float = 1.0  # gradient norm
    keep_last: int = 1  # checkpoints kept for their age
    keep_best: int = 1  # checkpoints kept for their loss on dev; the best one becomes the model

    def __post_init__(self) -> None:
        at_least(1, "nnlm", self, "num_epochs", "repeats", "batch_words", "keep_best")
        super().__post_init__()
