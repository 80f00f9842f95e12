"""Settings of tokens, lexicon, n-gram and graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from asrtool.settings import registry
from asrtool.settings.schema import at_least, between, one_of, path, releases_of

if TYPE_CHECKING:
    from asrtool.settings.config import Config

NOT_IN_WORDS = "(){}[]<>/\\;@*\u2581"  # what stm, ctm and SentencePiece read as something else than a part of a word
MAX_CHOSEN_SIZE = 500  # tokens, where tokenizer.vocab_size is 0


@dataclass(frozen=True)
class Tokenizer:
    """The tokens of the acoustic model; noise tags are tokens of their own."""

    unit: str = "bpe"  # SentencePiece pieces, or phone: those of the CMU Pronouncing Dictionary
    vocab_size: int = 500  # tokens of bpe; 0 chooses as many as suit the text
    byte_fallback: bool = False  # 256 more tokens spell, in bytes of UTF-8, characters that are rare or not in the text

    def __post_init__(self) -> None:
        one_of("tokenizer.unit", self.unit, ("bpe", "phone"))
        between("tokenizer.vocab_size", self.vocab_size, 0, 32000)  # what the text needs is not known here
        if self.byte_fallback and self.unit != "bpe":
            raise ValueError(f"tokenizer.byte_fallback is true but tokenizer.unit is {self.unit}, expected bpe")


@dataclass(frozen=True)
class Lang:
    """Word lexicon over the tokens."""

    max_words: int = 0  # most frequent words kept; 0 keeps all

    def __post_init__(self) -> None:
        at_least(0, "lang", self, "max_words")


@dataclass(frozen=True)
class Lm:
    """Word n-gram."""

    extra_text: tuple[str, ...] = path((), "corpus")  # more text: transcripts of corpora, and files of sentences
    order: int = 3  # words of the longest n-gram
    min_counts: tuple[int, ...] = (1,)  # an n-gram seen less often is left out: by order, the last for all above
    mix: bool = True  # one model a text, mixed by weights tuned on held-out text; false takes all texts as one
    prune: float = 0.0  # an n-gram that alone raises the perplexity by a smaller fraction is left out, for example 1e-8
    large: bool = False  # whether the model is also kept as it was before pruning, to rescore with

    def __post_init__(self) -> None:
        between("lm.order", self.order, 1, 6)
        if not self.min_counts or min(self.min_counts) < 1 or list(self.min_counts) != sorted(self.min_counts):
            raise ValueError(f"lm.min_counts is {self.min_counts}, expected counts of 1 or more that do not fall")
        between("lm.prune", self.prune, 0, 1)

    def check(self, config: Config) -> None:
        """Check that no text occurs twice and no training corpus is an extra text."""
        known = registry.names("corpus")
        for number, name in enumerate(self.extra_text):
            for before in self.extra_text[:number]:
                if name == before or ({name, before} <= {*known} and releases_of(name) & releases_of(before)):
                    raise ValueError(f"lm.extra_text has a text twice, as {before} and {name}, expected one of them")
        for name in (name for name in self.extra_text if name in known):
            for corpus in config.data.train:
                if releases_of(name) & releases_of(corpus.name):
                    both = name if name == corpus.name else f"{name}, the second as part of {corpus.name}"
                    raise ValueError(f"lm.extra_text and data.train both name {both}, expected one of them")


@dataclass(frozen=True)
class Graph:
    """Decoding graph HLG."""

    backend: str = "kaldifst"  # or k2, which needs an environment of its own: make test-k2

    def __post_init__(self) -> None:
        one_of("graph.backend", self.backend, ("kaldifst", "k2"))
