"""Settings of encoders and objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from asrtool.settings.schema import Choice, at_least, between, choice, component_name

if TYPE_CHECKING:
    from asrtool.settings.config import Config


@dataclass(frozen=True)
class Model:
    """Acoustic model: an encoder, and what it is trained for."""

    encoder: Choice = choice("encoder", "lstm")  # features to hidden rows
    objective: Choice = choice("objective", "ctc")  # hidden rows and targets to a loss; it decides how to decode
    deltas: int = 0  # orders of time derivatives beside the features; 2: deltas and delta-deltas

    def __post_init__(self) -> None:
        between("model.deltas", self.deltas, 0, 2)


@dataclass(frozen=True)
class Lstm:
    """LSTM layers over rows of a few frames, stacked or by convolutions."""

    num_layers: int = 3  # each of both directions, where it is bidirectional; 0: as many as suit the speech
    hidden_size: int = 256  # cells a direction
    bidirectional: bool = True  # otherwise a row depends on no later one; by convolutions on two
    projection_size: int = 0  # size of the recurrent projection of each direction; 0: none
    bottleneck_size: int = 0  # values of a linear layer after the last LSTM; 0 is none
    stack_frames: int = 3  # feature frames that make a row
    conv_channels: int = 0  # channels of two convolutions that make a row; 0: frames are stacked
    layer_norm: bool = True  # whether the output of each layer is normalised
    dropout: float = 0.1  # fraction of the values after a layer that are zeroed in training
    sequence_dropout: bool = False  # drop the same values in all frames of an utterance
    weight_drop: float = 0.0  # fraction of the recurrent weights that are zeroed in training
    residual: bool = False  # whether the input of each layer but the first is added to its output

    def __post_init__(self) -> None:
        between("model.lstm.num_layers", self.num_layers, 0, 24)
        between("model.lstm.hidden_size", self.hidden_size, 1, 8192)
        between("model.lstm.dropout", self.dropout, 0, 0.9)
        between("model.lstm.weight_drop", self.weight_drop, 0, 0.9)
        if self.conv_channels:
            between("model.lstm.stack_frames with conv_channels", self.stack_frames, 1, 4)
        between("model.lstm.stack_frames", self.stack_frames, 1, 8)
        between("model.lstm.conv_channels", self.conv_channels, 0, 1024)
        between("model.lstm.projection_size", self.projection_size, 0, self.hidden_size - 1)
        between("model.lstm.bottleneck_size", self.bottleneck_size, 0, 8192)

    @property
    def over_bins(self) -> bool:
        """True if neighbouring values of a frame are neighbouring frequencies."""
        return self.conv_channels > 0

    @property
    def frames_a_row(self) -> int:
        """Feature frames that make a row of the output."""
        return self.stack_frames


@dataclass(frozen=True)
class DeepSpeech2:
    """Convolutions over time and frequency, then LSTM layers with batch norm."""

    over_bins: ClassVar[bool] = True  # whether neighbouring values of a frame are taken for neighbouring frequencies
    frames_a_row: ClassVar[int] = 2  # of the output

    num_channels: int = 32  # of the two convolutions
    num_layers: int = 5  # of LSTM
    hidden_size: int = 512  # cells a direction
    bidirectional: bool = True  # otherwise later frames count as far as the convolutions and `lookahead` see
    lookahead: int = 10  # rows of two frames ahead that a last convolution sees, where it is not bidirectional
    dropout: float = 0.1  # fraction of the values after a layer that are zeroed in training

    def __post_init__(self) -> None:
        between("model.deepspeech2.num_channels", self.num_channels, 1, 1024)
        between("model.deepspeech2.num_layers", self.num_layers, 1, 24)
        between("model.deepspeech2.hidden_size", self.hidden_size, 1, 8192)
        between("model.deepspeech2.lookahead", self.lookahead, 0, 200)
        between("model.deepspeech2.dropout", self.dropout, 0, 0.9)


@dataclass(frozen=True)
class Conformer:
    """Self-attention and convolutions over rows of four frames."""

    over_bins: ClassVar[bool] = True
    frames_a_row: ClassVar[int] = 4

    num_layers: int = 12  # blocks
    num_heads: int = 4  # of the attention
    head_size: int = 64  # values of a head; a row has those of all heads
    feed_forward_size: int = 1024  # values between the two linear layers
    kernel_size: int = 31  # rows that a convolution sees
    dropout: float = 0.1  # fraction of the values that are zeroed in training

    def __post_init__(self) -> None:
        between("model.conformer.num_layers", self.num_layers, 1, 100)
        between("model.conformer.num_heads", self.num_heads, 1, 100)
        between("model.conformer.head_size", self.head_size, 1, 1024)
        between("model.conformer.feed_forward_size", self.feed_forward_size, 1, 65536)
        between("model.conformer.kernel_size", self.kernel_size, 1, 1000)
        between("model.conformer.dropout", self.dropout, 0, 0.9)

    @property
    def size(self) -> int:
        """Values of a row."""
        return self.num_heads * self.head_size


@dataclass(frozen=True)
class WordLstm:
    """LSTM over words."""

    num_layers: int = 2  # of LSTM
    hidden_size: int = 512  # cells of a layer
    projection_size: int = 0  # values of a word, and of the output of a layer, within the recurrence; 0: `hidden_size`
    dropout: float = 0.3  # fraction of the values after a layer that are zeroed in training

    def __post_init__(self) -> None:
        at_least(1, "nnlm.word-lstm", self, "num_layers", "hidden_size")
        between("nnlm.word-lstm.projection_size", self.projection_size, 0, self.hidden_size - 1)
        between("nnlm.word-lstm.dropout", self.dropout, 0, 0.9)


@dataclass(frozen=True)
class Softmax:
    """All words in one softmax."""

    by_frequency: ClassVar[bool] = False  # whether words have to be numbered by frequency


@dataclass(frozen=True)
class Adaptive:
    """Adaptive softmax: frequent words and groups of rare ones; it sums to 1."""

    by_frequency: ClassVar[bool] = True

    cutoffs: tuple[int, ...] = (2000, 8000, 20000)  # words more frequent than those of each group

    def __post_init__(self) -> None:
        if list(self.cutoffs) != sorted({cutoff for cutoff in self.cutoffs if cutoff > 0}) or not self.cutoffs:
            raise ValueError(f"nnlm.adaptive.cutoffs is {list(self.cutoffs)}, expected numbers above 0 that increase")


@dataclass(frozen=True)
class Ctc:
    """Connectionist temporal classification."""

    searches: ClassVar[tuple[str, ...]] = ("greedy", "beam", "graph", "rescore")  # that its scores can be given to
    topology: ClassVar[str] = (
        "asrtool.models.objectives.topology:CtcTopology"  # how rows of its scores stand for tokens
    )
    table: ClassVar[str] = "model.ctc"  # of the settings

    consistency: float = 0.0  # weight of the divergence of two copies of an utterance, masked differently; 0: one copy

    def __post_init__(self) -> None:
        between(f"{self.table}.consistency", self.consistency, 0, 10)

    def check(self, config: Config) -> None:
        """Check that there is one view if devices share a model."""
        if self.consistency and config.train.pipeline_stages > 1:
            raise ValueError(f"{self.table}.consistency and train.pipeline_stages exclude each other")


@dataclass(frozen=True)
class Hybrid:
    """Base of objectives whose classes are pdfs of a decision tree."""

    table: ClassVar[str]  # of the settings
    searches: ClassVar[tuple[str, ...]] = ("graph", "rescore")  # that its scores can be given to
    needs: ClassVar[tuple[str, ...]] = ("aligner", "targets", "hybrid", "realign")  # stages whose outputs it reads
    topology: ClassVar[str] = (
        "asrtool.models.objectives.topology:LeafTopology"  # how rows of its scores stand for tokens
    )
    uses_tree: ClassVar[bool] = True

    aligner: str = component_name("objective", "ctc")  # objective of the model that makes the first alignment
    prior_scale: float = 0.5  # of the log priors that are taken off the log posteriors

    def __post_init__(self) -> None:
        between(f"{self.table}.prior_scale", self.prior_scale, 0, 2)

    def check(self, config: Config) -> None:
        """Check that the first model can align, and needs no alignment itself."""
        settings = Choice.of("objective", self.aligner).settings
        if not getattr(settings, "topology", "") or getattr(settings, "uses_tree", False):
            raise ValueError(f"{self.table}.aligner is {self.aligner!r}, expected an objective that aligns, as ctc")


@dataclass(frozen=True)
class FrameCe(Hybrid):
    """Hybrid model of the papers: HMM states in context by forced alignment."""

    table: ClassVar[str] = "model.frame-ce"

    piece_frames: int = 0  # frames of the pieces that train instead of utterances; papers: 21; 0: off

    def __post_init__(self) -> None:
        super().__post_init__()
        between("model.frame-ce.piece_frames", self.piece_frames, 0, 100_000)

    def check(self, config: Config) -> None:
        """Check that pieces are whole rows, before anything is trained."""
        super().check(config)
        encoder = config.model.encoder
        frames = getattr(encoder.settings, "frames_a_row", 1)
        if self.piece_frames % frames:
            what = f"model.frame-ce.piece_frames is {self.piece_frames} but a row of model.encoder {encoder.name} has"
            raise ValueError(
                f"{what} {frames} frames, expected a multiple, as {max(frames, self.piece_frames // frames * frames)}"
            )


@dataclass(frozen=True)
class LfMmi(Hybrid):
    """Sequence training of a hybrid model by lattice-free MMI."""

    table: ClassVar[str] = "model.lf-mmi"
    needs: ClassVar[tuple[str, ...]] = (*Hybrid.needs, "start")
    parameters_of: ClassVar[str] = "frame-ce"  # objective with the same parameters, whose model training begins with

    num_epochs: int = 2  # of the sequence training; the models before it have train.num_epochs
    peak_lr_divisor: float = 6.0  # the highest learning rate of the sequence training is train.peak_lr divided by this
    ce_scale: float = 0.1  # weight of the frame-ce loss that is added
    max_histories: int = 2000  # histories of two or more tokens in the 4-gram over tokens, the most frequent ones
    leak: float = 0.01  # leaky HMM: probability to restart after a row, relative to 1 for going on

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, self.table, self, "ce_scale", "max_histories")
        at_least(1, self.table, self, "num_epochs", "peak_lr_divisor")
        between("model.lf-mmi.leak", self.leak, 1e-10, 1)


@dataclass(frozen=True)
class Tree:
    """Decision tree of the states of a hybrid model."""

    num_leaves: int = 2000  # leaves of the context tree at most; each token and silence has two or more
    min_count: int = 200  # rows of a leaf that is split off, at least

    def __post_init__(self) -> None:
        between("tree.num_leaves", self.num_leaves, 1, 100_000)
        at_least(1, "tree", self, "min_count")


@dataclass(frozen=True)
class Transducer:
    """Recurrent neural network transducer."""

    searches: ClassVar[tuple[str, ...]] = ("transducer-greedy", "transducer-beam")  # that its scores can be given to

    joint_size: int = 256  # size of the space in which a row and a prediction are added
    context: int = 2  # tokens of left context that predict the next one
    one_a_row: bool = True  # whether a row emits at most one token, as in transducer-beam; otherwise any number

    def __post_init__(self) -> None:
        between("model.transducer.joint_size", self.joint_size, 1, 8192)
        between("model.transducer.context", self.context, 1, 16)


@dataclass(frozen=True)
class Attention:
    """LSTM decoder with one attention head."""

    searches: ClassVar[tuple[str, ...]] = ("attention-greedy", "attention-beam")  # that its scores can be given to

    hidden_size: int = 256  # cells of each of the two decoder layers, and size of a token's embedding
    attention_size: int = 128  # size of the hidden layer that scores a row
    kernel_size: int = 15  # rows, odd, of the convolution over the previous attention weights
    dropout: float = 0.1  # fraction of the values of tokens and after layers that are zeroed in training
    weight_drop: float = 0.0  # fraction of the recurrent weights that are zeroed in training
    label_smoothing: float = 0.1  # fraction of the target that is given to all tokens alike
    sampling: float = 0.0  # fraction of previous tokens drawn from the model in training: scheduled sampling
    ctc_weight: float = 0.3  # weight of the CTC loss on the same rows; 0: the decoder alone

    def __post_init__(self) -> None:
        between("model.attention.hidden_size", self.hidden_size, 1, 8192)
        between("model.attention.attention_size", self.attention_size, 1, 8192)
        between("model.attention.kernel_size", self.kernel_size, 1, 1001)
        if self.kernel_size % 2 == 0:
            raise ValueError(f"model.attention.kernel_size is {self.kernel_size}, expected an odd number")
        for key in ("dropout", "weight_drop", "label_smoothing", "sampling"):
            between(f"model.attention.{key}", getattr(self, key), 0, 0.9)
        between("model.attention.ctc_weight", self.ctc_weight, 0, 0.9)
