"""Settings: typed, validated dataclasses.

One dataclass is one table of the TOML file; every field name holds its unit (``_s`` seconds, ``_hz``, ``_frames``).
config_file.py reads and writes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from asrtool.errors import AsrtoolError

# Name -> module and function that builds it from asrtool.distributed.strategy.StrategyContext; loaded when used.
STRATEGIES = {
    "single": "asrtool.distributed.strategy.single",
    "allreduce": "asrtool.distributed.allreduce.allreduce",
    "adpsgd-fixed": "asrtool.distributed.adpsgd.adpsgd",
    "adpsgd-random": "asrtool.distributed.adpsgd.adpsgd",
    "adpsgd-d1": "asrtool.distributed.delay_by_one.delay_by_one",
    "h-adpsgd": "asrtool.distributed.hierarchical.hierarchical",
    "bmuf": "asrtool.distributed.bmuf.bmuf",
    "ps-async": "asrtool.distributed.parameter_server.parameter_server",
    "hogwild": "asrtool.distributed.hogwild.hogwild",
}
METHODS = ("greedy", "beam", "graph", "rescore")
TRAIN_CORPORA = ("swbd", "fisher", "an4", "own")


def _choice(name: str, value: str, allowed: Iterable[str]) -> None:
    allowed = tuple(allowed)
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(allowed)}")


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}, expected {low:g} to {high:g}")


def _at_least(low: float, section: str, settings: object, *names: str) -> None:
    for name in names:
        if getattr(settings, name) < low:
            raise ValueError(f"{section}.{name} is {getattr(settings, name)}, expected {low:g} or more")


@dataclass(frozen=True)
class Paths:
    """Where corpora lie on this site; empty means not configured."""

    ldc97s62: str = ""  # Switchboard-1 Release 2 audio
    swb_ms98_transcriptions: str = ""  # MS-State transcripts of Switchboard-1
    ldc2004s13: str = ""  # Fisher part 1 audio
    ldc2004t19: str = ""  # Fisher part 1 transcripts
    ldc2005s13: str = ""  # Fisher part 2 audio
    ldc2005t19: str = ""  # Fisher part 2 transcripts
    ldc2002s09: str = ""  # Hub5'00 audio
    ldc2002t43: str = ""  # Hub5'00 references
    an4: str = ""  # CMU AN4, with etc/ and wav/
    own_train: str = ""  # a person's own data: Kaldi data directory, lhotse manifests or wav + txt folder
    own_dev: str = ""  # the same; empty holds out a part of own_train
    own_test: str = ""


@dataclass(frozen=True)
class Mini:
    """Size of the synthetic corpus that stands in for the LDC releases."""

    train_hours: float = 1.0  # hours of speech, Switchboard and Fisher part together
    test_minutes: float = 8.0  # minutes of speech, Switchboard and CallHome part together
    seed: int = 2000

    def __post_init__(self) -> None:
        _between("mini.train_hours", self.train_hours, 0.005, 100)
        _between("mini.test_minutes", self.test_minutes, 0.2, 600)


@dataclass(frozen=True)
class Data:
    """Which corpora train the model, and what is left out."""

    train: tuple[str, ...] = ("swbd", "fisher")  # corpora to train on
    dev_minutes: float = 5.0  # speech held out, whole conversations, whose speakers are in no training conversation
    max_duplicates: int = 300  # an utterance text is kept at most so often, as Kaldi does
    min_duration_s: float = 0.1
    max_duration_s: float = 20.0
    bad_share: float = 0.01  # fail when more than this share of recordings or transcripts cannot be used
    segment_padding_s: float = 0.1  # test segments are widened so much on both sides, as Kaldi does

    def __post_init__(self) -> None:
        if not self.train:
            raise ValueError("data.train is empty, expected at least one corpus")
        for corpus in self.train:
            _choice("data.train", corpus, TRAIN_CORPORA)
        _between("data.bad_share", self.bad_share, 0, 1)


@dataclass(frozen=True)
class Features:
    """Log-mel filterbanks."""

    sampling_rate_hz: int = 8000
    num_mel_bins: int = 40
    frame_shift_ms: float = 10.0
    frame_length_ms: float = 25.0
    speeds: tuple[float, ...] = (0.9, 1.0, 1.1)  # speed perturbation of the training set
    cmvn: str = "speaker"  # mean and variance: per speaker, global, or none
    storage: str = "lilcom"  # or shar
    shard_cuts: int = 500  # utterances a shard, which one process writes and training reads whole
    bad_share: float = 0.01  # fail when more than this share of utterances has no readable audio
    num_jobs: int = 0  # processes; 0 is one per core

    def __post_init__(self) -> None:
        _choice("features.cmvn", self.cmvn, ("speaker", "global", "none"))
        _choice("features.storage", self.storage, ("lilcom", "shar"))
        _between("features.num_mel_bins", self.num_mel_bins, 8, 256)
        _between("features.bad_share", self.bad_share, 0, 1)
        _between("features.sampling_rate_hz", self.sampling_rate_hz, 4000, 192000)
        _between("features.frame_shift_ms", self.frame_shift_ms, 1, self.frame_length_ms)
        if 1.0 not in self.speeds or len(set(self.speeds)) < len(self.speeds):
            raise ValueError(f"features.speeds is {self.speeds}, expected 1.0 among them and none twice")
        for speed in self.speeds:
            _between("features.speeds", speed, 0.5, 2)
        _at_least(1, "features", self, "shard_cuts")
        _at_least(0, "features", self, "num_jobs")


@dataclass(frozen=True)
class Tokenizer:
    """What the acoustic model spells words with; noise tags are tokens of their own."""

    unit: str = "bpe"  # SentencePiece pieces, or phone: those of the CMU Pronouncing Dictionary
    vocab_size: int = 500  # of bpe

    def __post_init__(self) -> None:
        _choice("tokenizer.unit", self.unit, ("bpe", "phone"))
        _between("tokenizer.vocab_size", self.vocab_size, 30, 32000)


@dataclass(frozen=True)
class Lang:
    """Word lexicon over the tokens."""

    max_words: int = 0  # most frequent words kept; 0 keeps all

    def __post_init__(self) -> None:
        _at_least(0, "lang", self, "max_words")


@dataclass(frozen=True)
class Lm:
    """Word n-gram."""

    order: int = 3
    min_counts: tuple[int, ...] = (1,)  # an n-gram seen less often is left out: by order, the last for all above
    mix: bool = True  # one model a text, mixed; false takes all texts as one
    weights: tuple[float, ...] = ()  # of the texts in the mixture; empty tunes them on held-out text
    prune: float = 0.0  # an n-gram that alone raises the perplexity by a smaller share is left out, for example 1e-8
    large: bool = False  # whether the model is also kept as it was before pruning, to rescore with
    memory_gib: float = 0.5  # held at most, beside the words; the rest lies beside the output until it is done

    def __post_init__(self) -> None:
        _between("lm.order", self.order, 1, 6)
        if not self.min_counts or min(self.min_counts) < 1 or list(self.min_counts) != sorted(self.min_counts):
            raise ValueError(f"lm.min_counts is {self.min_counts}, expected counts of 1 or more that do not fall")
        if self.weights and (min(self.weights) < 0 or abs(sum(self.weights) - 1) > 1e-6):
            raise ValueError(f"lm.weights is {self.weights}, expected numbers that sum to one")
        if self.weights and not self.mix:
            raise ValueError(f"lm.weights is {self.weights} but lm.mix is false, expected one of them")
        _between("lm.prune", self.prune, 0, 1)
        _between("lm.memory_gib", self.memory_gib, 0.01, 1024)


@dataclass(frozen=True)
class Graph:
    """Decoding graph HLG."""

    backend: str = "kaldifst"  # or k2, which needs an environment of its own: make test-k2

    def __post_init__(self) -> None:
        _choice("graph.backend", self.backend, ("kaldifst", "k2"))


@dataclass(frozen=True)
class Model:
    """Acoustic model."""

    kind: str = "lstm"
    num_layers: int = 3
    hidden_size: int = 256  # cells a direction
    stack_frames: int = 3  # feature frames joined to one input frame
    dropout: float = 0.1

    def __post_init__(self) -> None:
        _choice("model.kind", self.kind, ("lstm",))
        _between("model.num_layers", self.num_layers, 1, 24)
        _between("model.hidden_size", self.hidden_size, 1, 8192)
        _between("model.dropout", self.dropout, 0, 0.9)
        _between("model.stack_frames", self.stack_frames, 1, 8)


@dataclass(frozen=True)
class SpecAugment:
    """Masks on the features of training batches."""

    num_freq_masks: int = 2
    max_freq_bins: int = 8
    num_time_masks: int = 2
    max_time_frames: int = 20
    max_time_share: float = 0.15  # of the utterance, all time masks together

    def __post_init__(self) -> None:
        _at_least(0, "specaugment", self, "num_freq_masks", "max_freq_bins", "num_time_masks", "max_time_frames")
        _between("specaugment.max_time_share", self.max_time_share, 0, 1)


@dataclass(frozen=True)
class Train:
    """Optimisation."""

    strategy: str = "single"  # how learners share the work, see [dist]
    criterion: str = "ctc"  # or k2-ctc: the same loss computed by k2, see graph.backend
    seed: int = 1
    num_epochs: int = 5
    batch_s: float = 120.0  # seconds of speech in a batch, padding included
    optimizer: str = "adamw"
    peak_lr: float = 0.002
    schedule: str = "one-cycle"  # warm up to peak_lr, then fall: one-cycle (cosine), inverse-sqrt, halving
    warmup_share: float = 0.15  # of all samples
    hold_share: float = 0.0  # of all samples, at peak_lr after the warm-up; halving only
    final_lr_share: float = 0.01  # last learning rate / peak_lr; one-cycle only
    momentum: float = 0.9  # of sgd
    weight_decay: float = 0.01
    clip_norm: float = 5.0  # gradient norm
    precision: str = "auto"  # bf16 where the processor has it, else fp32
    num_threads: int = 0  # torch threads; 0 leaves torch's choice
    log_every_steps: int = 10
    save_every_steps: int = 100
    keep_last: int = 5
    keep_best: int = 2
    cache_gib: float = 4.0  # features held in memory when they all fit

    def __post_init__(self) -> None:
        _choice("train.strategy", self.strategy, STRATEGIES)
        _choice("train.criterion", self.criterion, ("ctc", "k2-ctc"))
        _choice("train.optimizer", self.optimizer, ("adamw", "sgd"))
        _choice("train.schedule", self.schedule, ("one-cycle", "inverse-sqrt", "halving"))
        _choice("train.precision", self.precision, ("auto", "fp32", "bf16"))
        _between("train.warmup_share", self.warmup_share, 0, 0.9)
        _between("train.hold_share", self.hold_share, 0, 1 - self.warmup_share)
        _between("train.final_lr_share", self.final_lr_share, 0, 1)
        if self.schedule == "inverse-sqrt" and self.warmup_share == 0:
            raise ValueError("train.warmup_share is 0, expected more: inverse-sqrt falls from the end of the warm-up")
        for name in ("batch_s", "peak_lr", "clip_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"train.{name} is {getattr(self, name)}, expected more than 0")
        _at_least(1, "train", self, "num_epochs", "log_every_steps", "save_every_steps", "keep_last")
        _at_least(0, "train", self, "seed", "num_threads", "keep_best", "momentum", "weight_decay", "cache_gib")


@dataclass(frozen=True)
class Dist:
    """Learners that train together, by train.strategy."""

    num_learners: int = 0  # processes on this machine; 0 is one for single, else one per GPU or core
    lr_scale: float = 1.0  # learning rate as a multiple of that of the schedule
    message_type: str = "fp32"  # or bf16: weights that gossip exchanges
    node_size: int = 0  # learners of a super-learner of h-adpsgd; 0 is all of a machine
    outer: str = "adpsgd-random"  # how super-learners exchange; or adpsgd-fixed, adpsgd-d1
    block_steps: int = 8  # of bmuf between two averages
    block_momentum: float = 0.5  # of bmuf; 0 is plain periodic averaging
    block_rate: float = 1.0  # of bmuf, the share of a block's change that is taken
    num_servers: int = 1  # of ps-async, beside as many learners, each with its part of the weights

    def __post_init__(self) -> None:
        _choice("dist.message_type", self.message_type, ("fp32", "bf16"))
        _choice("dist.outer", self.outer, ("adpsgd-fixed", "adpsgd-random", "adpsgd-d1"))
        _at_least(0, "dist", self, "num_learners", "node_size")
        _at_least(1, "dist", self, "block_steps", "num_servers")
        _between("dist.block_momentum", self.block_momentum, 0, 0.99)
        for name in ("block_rate", "lr_scale"):
            if not getattr(self, name) > 0:
                raise ValueError(f"dist.{name} is {getattr(self, name)}, expected more than 0")


@dataclass(frozen=True)
class Average:
    """Which checkpoints are averaged into the model that decodes."""

    by: str = "last"  # or best, by loss on dev
    num: int = 3

    def __post_init__(self) -> None:
        _choice("average.by", self.by, ("last", "best"))
        _at_least(1, "average", self, "num")


@dataclass(frozen=True)
class Nnlm:
    """Word LSTM language model, for rescoring."""

    enabled: bool = False  # whether it is trained, and used by method rescore
    num_layers: int = 2
    hidden_size: int = 512  # cells of a layer, and values a word
    dropout: float = 0.3
    num_epochs: int = 10
    batch_words: int = 2000  # in a batch, padding included
    learning_rate: float = 0.001  # halved after an epoch that did not lower the perplexity on dev
    clip_norm: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        _at_least(1, "nnlm", self, "num_layers", "hidden_size", "num_epochs", "batch_words")
        _between("nnlm.dropout", self.dropout, 0, 0.9)
        for name in ("learning_rate", "clip_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"nnlm.{name} is {getattr(self, name)}, expected more than 0")
        _at_least(0, "nnlm", self, "seed")


# Least and greatest. Posteriors are divided by the language-model weight, which must leave them their accuracy.
BEAM_SIZES, LM_WEIGHTS, NNLM_WEIGHTS, WORD_PENALTIES = (1, 10_000), (0.001, 1000), (0, 100), (-20, 20)
MOST_ACTIVE = 2**31 - 1  # what both back ends count states in


@dataclass(frozen=True)
class Decode:
    """Search."""

    methods: tuple[str, ...] = ("greedy", "beam", "graph")  # also rescore: the lattices of graph, other language models
    batch_s: float = 200.0  # seconds of speech in an acoustic batch
    backend: str = "kaldi-decoder"  # of the graph search; or k2, see graph.backend
    lm_weights: tuple[float, ...] = (0.3, 0.5, 0.8, 1.1)  # tried on dev, as are all tuples below
    word_penalties: tuple[float, ...] = (-0.5, 0.0, 0.5)  # of each word, in the scale of the language model
    beam_sizes: tuple[int, ...] = (16, 32)  # hypotheses of the prefix beam
    graph_beams: tuple[float, ...] = (10.0, 14.0)  # log-probability range of graph search, in the scale of the graph
    max_active: int = 3000  # states of the graph search
    lattice_beam: float = 10.0  # what lattices keep below the best path, in the scale of the graph; rescore only
    num_paths: int = 100  # sentences of an n-best list; rescore only
    nnlm_weights: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6)  # of the neural language model; rescore only
    num_jobs: int = 0  # processes; 0 is one per core

    def __post_init__(self) -> None:
        if not self.methods:
            raise ValueError(f"decode.methods is empty, expected at least one of {', '.join(METHODS)}")
        for method in self.methods:
            _choice("decode.methods", method, METHODS)
        if "rescore" in self.methods and "graph" not in self.methods:
            raise ValueError("decode.methods has rescore without graph, whose lattices it rescores; add graph")
        _choice("decode.backend", self.backend, ("kaldi-decoder", "k2"))
        for name in ("lm_weights", "word_penalties", "beam_sizes", "graph_beams", "nnlm_weights"):
            if not getattr(self, name):
                raise ValueError(f"decode.{name} is empty, expected one number to use or several to try")
        if min(self.graph_beams) <= 0:
            raise ValueError(f"decode.graph_beams is {self.graph_beams}, expected positive numbers")
        for weight in self.lm_weights:
            _between("decode.lm_weights", weight, *LM_WEIGHTS)
        for beam_size in self.beam_sizes:
            _between("decode.beam_sizes", beam_size, *BEAM_SIZES)
        for weight in self.nnlm_weights:
            _between("decode.nnlm_weights", weight, *NNLM_WEIGHTS)
        for penalty in self.word_penalties:
            _between("decode.word_penalties", penalty, *WORD_PENALTIES)
        for name in ("batch_s", "lattice_beam"):
            if not getattr(self, name) > 0:
                raise ValueError(f"decode.{name} is {getattr(self, name)}, expected more than 0")
        _at_least(1, "decode", self, "max_active", "num_paths")
        if self.max_active > MOST_ACTIVE:
            raise ValueError(f"decode.max_active is {self.max_active}, expected {MOST_ACTIVE} or less")
        _between("decode.num_jobs", self.num_jobs, 0, 1024)


@dataclass(frozen=True)
class Config:
    """All settings of a run."""

    paths: Paths = field(default_factory=Paths)
    mini: Mini = field(default_factory=Mini)
    data: Data = field(default_factory=Data)
    features: Features = field(default_factory=Features)
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    lang: Lang = field(default_factory=Lang)
    lm: Lm = field(default_factory=Lm)
    graph: Graph = field(default_factory=Graph)
    model: Model = field(default_factory=Model)
    specaugment: SpecAugment = field(default_factory=SpecAugment)
    train: Train = field(default_factory=Train)
    dist: Dist = field(default_factory=Dist)
    average: Average = field(default_factory=Average)
    nnlm: Nnlm = field(default_factory=Nnlm)
    decode: Decode = field(default_factory=Decode)


def check_conflicts(config: Config) -> None:
    """Raise AsrtoolError for settings of different sections that do not go together.

    Only for the settings of a whole run: a stage sees its own sections and the defaults of the others.
    """
    kept = {"last": config.train.keep_last, "best": config.train.keep_best}[config.average.by]
    if config.average.num > kept:
        key = f"train.keep_{config.average.by}"
        raise AsrtoolError(
            f"average.num is {config.average.num} but {key} is {kept}", f"raise {key} or lower average.num"
        )
    masked, num_bins = config.specaugment.max_freq_bins, config.features.num_mel_bins
    if masked > num_bins:
        raise AsrtoolError(
            f"specaugment.max_freq_bins is {masked} but features.num_mel_bins is {num_bins}",
            "a mask must fit into the bins",
        )

    for name in ("lm.large", "nnlm.enabled"):
        section, key = name.split(".")
        if getattr(getattr(config, section), key) and "rescore" not in config.decode.methods:
            raise AsrtoolError(f"{name} is true but decode.methods has no rescore, which uses it", "add rescore")
    if config.tokenizer.unit == "phone":
        wordless = [method for method in config.decode.methods if method in ("greedy", "beam")]
        if wordless:
            raise AsrtoolError(
                f"decode.methods names {wordless[0]} but tokenizer.unit is phone",
                "phones do not tell where a word begins, only the graph does: use --set decode.methods=graph",
            )
