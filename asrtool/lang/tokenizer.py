"""Text to tokens and back: SentencePiece BPE.

Token 0 is the CTC blank, token 1 stands for what cannot be spelled; there is no token for begin or end of sentence.
Writes ``tokenizer.model`` (SentencePiece) and ``tokens.txt`` (piece, id).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.symbols import write_symbols
from asrtool.lang.text import read_sentences

BLANK = "<blk>"
UNK = "<unk>"
ALPHABET = "abcdefghijklmnopqrstuvwxyz'-"  # of normalised text
TAGS = ("[noise]", "[laughter]", "[vocalized-noise]")
WORD_MARK = "\u2581"  # what SentencePiece writes for the space before a word


class Tokenizer:
    """A trained tokenizer. `pieces[i]` is the text of token i."""

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.num_tokens: int = self._processor.get_piece_size()
        self.pieces: list[str] = [self._processor.id_to_piece(i) for i in range(self.num_tokens)]

    @classmethod
    def load(cls, directory: Path | str) -> Tokenizer:
        """Read ``tokenizer.model`` in `directory`; AsrtoolError when it is missing or broken."""
        path = Path(directory) / "tokenizer.model"
        hint = "run `asrtool tokenizer` first"
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", hint) from error
        except RuntimeError as error:
            raise AsrtoolError(f"{path}: not a SentencePiece model", hint) from error

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; AsrtoolError naming the characters that no token spells."""
        ids: list[int] = self._processor.encode(text)
        if self._processor.unk_id() in ids:
            unknown = sorted(_characters([text]) - set(self.pieces))
            raise AsrtoolError(
                f"{text!r}: {', '.join(map(repr, unknown))} outside the tokenizer",
                "normalise the text, or train the tokenizer on text with these characters",
            )
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids; the blank has none."""
        return str(self._processor.decode(list(ids)))


def train_tokenizer(sentences: Path, out: Path, vocab_size: int) -> None:
    """Train `vocab_size` tokens on the lines of `sentences` and write them to the folder `out`.

    The same text gives the same tokens. Raises AsrtoolError when the text cannot be read, and when `vocab_size` is
    too small for the alphabet and its characters or too large for its words, with the nearest size that works.
    """
    lines = [" ".join(words) for words in read_sentences(sentences)]
    num_required = len(_characters(lines) | set(ALPHABET)) + len((BLANK, UNK, WORD_MARK, *TAGS))
    if vocab_size < num_required:
        raise _wrong_size(vocab_size, sentences, f"alphabet and characters need {num_required}", num_required)
    model = _train(lines, vocab_size)
    pieces = Tokenizer(model).pieces
    if len(pieces) < vocab_size:
        raise _wrong_size(vocab_size, sentences, f"its words make {len(pieces)} at most", len(pieces))
    with write_folder(out, "tokenizer.model") as temporary:
        (temporary / "tokenizer.model").write_bytes(model)
        write_symbols(temporary / "tokens.txt", pieces)


def _wrong_size(vocab_size: int, sentences: Path, found: str, nearest: int) -> AsrtoolError:
    return AsrtoolError(
        f"{sentences}: tokenizer.vocab_size is {vocab_size}, but {found}", f"use --set tokenizer.vocab_size={nearest}"
    )


def _characters(lines: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for line in lines:
        for tag in TAGS:
            line = line.replace(tag, "")
        found.update(line)
    return {character for character in found if not character.isspace()}


def _train(lines: Sequence[str], vocab_size: int) -> bytes:
    model = io.BytesIO()
    max_bytes = max(10, *(len(line.encode()) + 1 for line in lines))  # longer ones are skipped, less than 10 is refused
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        hard_vocab_limit=False,  # a text with too few words makes fewer pieces, which the caller counts
        pad_id=0,
        pad_piece=BLANK,
        unk_id=1,
        unk_piece=UNK,
        unk_surface=UNK,
        bos_id=-1,
        eos_id=-1,
        user_defined_symbols=list(TAGS),
        required_chars=ALPHABET,  # so that words of dev are spelled whose letters a small training text lacks
        character_coverage=1.0,  # a character left out would leave its words without a spelling
        normalization_rule_name="identity",  # text is normalised before, by rules a person can read
        split_by_unicode_script=False,  # the apostrophe is of another script, and contractions are frequent words
        max_sentence_length=max_bytes,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()
