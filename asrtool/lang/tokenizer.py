"""Tokenizers: their interface, and SentencePiece BPE; phones.py has phones.

Token 0 is no part of a word and is left to the objective, token 1 is unknown; there is no token for start or end of
sentence. The folder of a tokenizer holds ``tokens.txt`` (token, id) and ``tokenizer.model`` (SentencePiece) or
``pronunciations.txt`` (a word and its phones).
"""

from __future__ import annotations

import hashlib
import io
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.text import read_sentences, read_symbols, write_symbols
from asrtool.settings.lang import MAX_CHOSEN_SIZE
from asrtool.settings.lang import Tokenizer as TokenizerSettings

NO_TOKEN = "<blk>"
UNK = "<unk>"
ALPHABET = "abcdefghijklmnopqrstuvwxyz'-"  # characters of normalised text
TAGS = ("[noise]", "[laughter]", "[vocalized-noise]")
HASH = "#"  # a token of its own, since #1, #2, ... are the disambiguation symbols of a graph
WORD_MARK = "\u2581"  # SentencePiece's character for the space before a word
BPE_FILE = "tokenizer.model"
PHONE_FILE = "pronunciations.txt"
TOKENS_FILE = "tokens.txt"
BYTE_COVERAGE = 0.9995  # fraction of the characters of a text that have tokens of their own beside bytes
# For a chosen size: text that a piece beyond the characters needs, so that a model can learn it.
WORDS_A_PIECE, DIFFERENT_WORDS_A_PIECE = 100, 4


class Tokenizer(ABC):
    """Tokenizer of words; `pieces[i]` is the text of token i.

    Tokenizers with the same `digest` have the same tokens.
    """

    def __init__(self, pieces: Iterable[str], content: bytes) -> None:
        """Take the pieces, and the content that identifies the tokens for a model."""
        self.pieces: list[str] = list(pieces)
        self.num_tokens: int = len(self.pieces)
        self.digest = hashlib.sha256(content).hexdigest()

    @staticmethod
    def load(directory: Path | str) -> Tokenizer:
        """Load the tokenizer in `directory`; AsrtoolError if it is missing or broken."""
        path = tokenizer_file(Path(directory))
        if path.name == PHONE_FILE:
            from asrtool.lang.phones import PhoneTokenizer

            return PhoneTokenizer.read(path)
        return BpeTokenizer.read(path)

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the token ids of `text`, word by word.

        Single spaces divide words. AsrtoolError names characters outside the tokens.
        """

    @abstractmethod
    def tokenizations(self, word: str) -> list[tuple[str, ...]]:
        """Return all tokenizations of `word`; the first is the one of `encode`."""


def tokenizer_file(directory: Path) -> Path:
    """Return the file that identifies a tokenizer; it may be missing."""
    phones = directory / PHONE_FILE
    return phones if phones.exists() else directory / BPE_FILE


class BpeTokenizer(Tokenizer):
    """A trained SentencePiece model."""

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        super().__init__(map(self._processor.id_to_piece, range(self._processor.get_piece_size())), model)
        self._spans_words = any(WORD_MARK in piece[1:] for piece in self.pieces)  # asrtool trains none of these

    @classmethod
    def read(cls, path: Path) -> BpeTokenizer:
        """Read a SentencePiece model.

        Raises AsrtoolError if it is missing or broken, and if a ``tokens.txt`` beside it has other pieces.
        """
        hint = "run `asrtool tokenizer` first"
        try:
            tokenizer = cls(path.read_bytes())
        except OSError as error:
            raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", hint) from error
        except RuntimeError as error:
            raise AsrtoolError(f"{path}: not a SentencePiece model", hint) from error
        if not tokenizer.pieces:
            raise AsrtoolError(f"{path}: not a SentencePiece model, it has no pieces", hint)
        tokens = path.with_name(TOKENS_FILE)
        if tokens.exists() and read_symbols(tokens, "tokenizer") != tokenizer.pieces:
            raise AsrtoolError(f"{path}: its pieces are not those of {tokens}", "run `asrtool tokenizer` again")
        return tokenizer

    def encode(self, text: str) -> list[int]:
        if self._spans_words and " " in text:
            return [token for word in text.split(" ") for token in self.encode(word)]
        ids: list[int] = self._processor.encode(text)
        if self._processor.unk_id() in ids:
            unknown = sorted(_characters([text]) - set(self.pieces))
            raise AsrtoolError(
                f"{text!r}: {', '.join(map(repr, unknown))} outside the tokenizer",
                "normalise the text, train the tokenizer on text with these characters, or with byte_fallback",
            )
        return ids

    def tokenizations(self, word: str) -> list[tuple[str, ...]]:
        return [tuple(self.pieces[token] for token in self.encode(word))]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids; token 0 has none."""
        return str(self._processor.decode(list(ids)))


def make_tokenizer(sentences: Path, out: Path, settings: TokenizerSettings) -> None:
    """Write the tokenizer of `settings` for the lines of `sentences` to `out`."""
    if settings.unit == "phone":
        from asrtool.lang.phones import write_phones

        write_phones(sentences, out)
    else:
        train_tokenizer(sentences, out, settings.vocab_size, settings.byte_fallback)


def train_tokenizer(sentences: Path, out: Path, vocab_size: int, byte_fallback: bool = False) -> None:
    """Train `vocab_size` BPE tokens on the lines of `sentences`; write `out`.

    A size of 0 is chosen to suit the text. With `byte_fallback` 256 tokens are bytes, which spell rare characters.
    The same text gives the same tokens. Raises AsrtoolError if the text cannot be read, or if `vocab_size` is too
    small for the characters or too large for the words, with a size that fits.
    """
    lines = [" ".join(words) for words in read_sentences(sentences)]
    coverage = BYTE_COVERAGE if byte_fallback else 1.0  # a character left out would leave its words without tokens
    characters = _frequent(lines, coverage) | set(_alphabet(lines))
    num_required = len(characters) + len((NO_TOKEN, UNK, WORD_MARK, *TAGS)) + (256 if byte_fallback else 0)
    suiting, reason = _suiting_size(lines, num_required)
    if 0 < vocab_size < num_required:
        found = f"{'bytes, ' if byte_fallback else ''}alphabet and characters need {num_required}"
        raise _wrong_size(vocab_size, sentences, found, num_required)
    model = _train(lines, vocab_size or suiting, coverage)
    pieces = BpeTokenizer(model).pieces
    if len(pieces) < vocab_size:
        found = f"its words make {len(pieces)} at most, each of them a piece then"
        raise _wrong_size(vocab_size, sentences, found, min(suiting, len(pieces)), f"{reason}: ")
    if not vocab_size:
        logging.info("tokenizer.vocab_size is 0: %d tokens, as %s", len(pieces), reason)
    with write_folder(out, BPE_FILE, PHONE_FILE) as temporary:
        (temporary / BPE_FILE).write_bytes(model)
        write_symbols(temporary / TOKENS_FILE, pieces)


def _suiting_size(lines: Sequence[str], num_required: int) -> tuple[int, str]:
    """Return how many tokens suit `lines`, which need `num_required`, and why.

    Characters suffice for a few words; a whole word as one token is learned from that word alone. If each word is a
    character, it is learned from that anyway, with one token instead of two.
    """
    spoken = [word for line in lines for word in line.split() if word not in TAGS]
    different = set(spoken)
    if max(map(len, different), default=0) == 1:
        reason = f"characters and tags need {num_required} and each of {len(different)} characters is a word"
        return num_required + len(different), reason
    more = min(len(spoken) // WORDS_A_PIECE, len(different) // DIFFERENT_WORDS_A_PIECE)
    more = max(0, min(more, MAX_CHOSEN_SIZE - num_required))
    text_size = f"{len(spoken)} words, {len(different)} different, are enough for {more} more"
    return num_required + more, f"characters and tags need {num_required} and {text_size}"


def _wrong_size(vocab_size: int, sentences: Path, found: str, better: int, reason: str = "") -> AsrtoolError:
    return AsrtoolError(
        f"{sentences}: tokenizer.vocab_size is {vocab_size}, but {found}",
        f"{reason}use --set tokenizer.vocab_size={better}",
    )


def _alphabet(lines: Sequence[str]) -> str:
    """Return the characters that get tokens in any case: English letters if used."""
    return ALPHABET if _characters(lines) <= set(ALPHABET) else ""


def _characters(lines: Iterable[str]) -> set[str]:
    return set(_count(lines)) - {" "}


def _count(lines: Iterable[str]) -> Counter[str]:
    """Count characters outside of tags, and the blank before each word."""
    counts: Counter[str] = Counter()
    for line in lines:
        for tag in TAGS:
            line = line.replace(tag, " ")
        counts.update("".join(f" {word}" for word in line.split()))
    return counts


def _frequent(lines: Sequence[str], coverage: float) -> set[str]:
    """Return the most frequent characters that cover a fraction of all.

    SentencePiece chooses them in the same way.
    """
    counts = _count(lines)
    total, found, kept = counts.total(), 0, set()
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if found >= coverage * total:
            break
        found += count
        kept.add(character)
    return kept - {" "}


def _train(lines: Sequence[str], vocab_size: int, coverage: float) -> bytes:
    model = io.BytesIO()
    max_bytes = max(10, *(len(line.encode()) + 1 for line in lines))  # longer ones are skipped, less than 10 is refused
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        hard_vocab_limit=False,  # a text with too few words makes fewer pieces, which the caller counts
        pad_id=0,
        pad_piece=NO_TOKEN,
        unk_id=1,
        unk_piece=UNK,
        unk_surface=UNK,
        bos_id=-1,
        eos_id=-1,
        user_defined_symbols=[*TAGS, *HASH] if any(HASH in line for line in lines) else list(TAGS),
        required_chars=_alphabet(lines),
        character_coverage=coverage,
        byte_fallback=coverage < 1,
        normalization_rule_name="identity",  # text is normalised before, by rules a person can read
        split_by_unicode_script=False,  # the apostrophe is of another script, and contractions are frequent words
        max_sentence_length=max_bytes,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()
