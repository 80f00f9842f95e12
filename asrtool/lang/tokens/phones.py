"""Phones as tokens: the CMU dictionary's ARPAbet without stress, and tags.

Writes ``pronunciations.txt``: a word and its phones, one pronunciation a line, the usual one first. It holds the
whole dictionary and further words of the training text.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.text import read_sentences, read_table, write_symbols
from asrtool.lang.tokens.letter_to_sound import LETTER_NAMES, PHONES, sound_letters
from asrtool.lang.tokens.tokenizer import ALPHABET, BPE_FILE, NO_TOKEN, PHONE_FILE, TAGS, UNK, Tokenizer

Phones = tuple[str, ...]
Dictionary = Mapping[str, list[Phones]]  # the first pronunciation of a word is the usual one

SPOKEN_NOISE = "[vocalized-noise]"  # the pronunciation of a word without letters

SIBILANTS = frozenset(("S", "Z", "SH", "ZH", "CH", "JH"))
VOICELESS = frozenset(("P", "T", "K", "F", "TH", "S", "SH", "CH"))
# Endings and their sound; Z and D are said as the phone before them asks for.
ENDINGS = {
    "'s": "Z", "s'": "Z", "s": "Z", "'": "", "'d": "D", "ed": "D", "'ll": "AH L", "'ve": "AH V", "'re": "ER",
    "n't": "AH N T", "ing": "IH NG", "in'": "AH N", "er": "ER", "ly": "L IY", "ish": "IH SH", "able": "AH B AH L",
    "ness": "N AH S", "less": "L AH S",
}  # fmt: skip


def read_cmudict() -> dict[str, list[Phones]]:
    """Read the CMU Pronouncing Dictionary: lower-case word -> pronunciations.

    It has no stress here. The package ``pocketsphinx`` brings it. Raises AsrtoolError if that is not installed.
    """
    try:
        package = importlib.metadata.distribution("pocketsphinx")
    except importlib.metadata.PackageNotFoundError as error:
        what = "tokenizer.unit = phone needs the package pocketsphinx, which is not installed"
        raise AsrtoolError(what, "pip install 'asrtool[phones]'") from error
    path = package.locate_file("pocketsphinx/model/en-us/cmudict-en-us.dict")
    dictionary: dict[str, list[Phones]] = {}
    for line in Path(str(path)).read_text(encoding="utf-8").splitlines():
        word, *phones = line.split()
        dictionary.setdefault(re.sub(r"\(\d+\)$", "", word), []).append(tuple(phones))
    return dictionary


def pronounce(word: str, dictionary: Dictionary) -> list[Phones]:
    """Return the pronunciations of a word of a-z, ' and -, at least one.

    They come from `dictionary`, else from the word's parts, its stem, or letter-to-sound rules.
    """
    if word in dictionary:
        return dictionary[word]
    if word.startswith("-") or word.endswith("-"):  # broken off: whole words of these letters are read otherwise
        return [sound_letters(word.replace("'", "")) or _name_letters(word)]
    parts = [part for part in word.split("-") if part.strip("'")]
    if "-" in word and parts:
        return [tuple(itertools.chain.from_iterable(pronounce(part, dictionary)[0] for part in parts))]
    return _inflect(word, dictionary) or [_read(word)]


def _inflect(word: str, dictionary: Dictionary) -> list[Phones]:
    """Return the pronunciations of a dictionary word with one of ENDINGS."""
    for ending, sound in ENDINGS.items():
        base = word.removesuffix(ending)
        stems = [base]
        if ending[0] in "aei":  # hop-e-d, hop-p-ed
            stems += [base + "e", base[:-1] if base[-1:] == base[-2:-1] else base]
        for stem in stems:
            if base != word and len(stem) > 1 and stem in dictionary:
                return [(*spoken, *_sound_ending(sound, spoken[-1])) for spoken in dictionary[stem]]
    return []


def _sound_ending(sound: str, before: str) -> list[str]:
    """Return the phones of an ending after `before`: cats, dogs, horses."""
    if sound == "Z":
        return ["AH", "Z"] if before in SIBILANTS else ["S"] if before in VOICELESS else ["Z"]
    if sound == "D":
        return ["AH", "D"] if before in ("T", "D") else ["T"] if before in VOICELESS else ["D"]
    return sound.split()


def _read(word: str) -> Phones:
    """A word of letters and ' as it is read; letter by letter if it has no vowel."""
    letters = word.replace("'", "")
    return (sound_letters(letters) if re.search("[aeiouy]", letters) else ()) or _name_letters(letters)


def _name_letters(word: str) -> Phones:
    """The names of the letters in `word`."""
    return tuple(" ".join(LETTER_NAMES.get(letter, "") for letter in word).split()) or (SPOKEN_NOISE,)


TOKENS = (NO_TOKEN, UNK, *TAGS, *PHONES)
NUM_NAMED = 10  # words named in the log


class PhoneTokenizer(Tokenizer):
    """Words to phones by dictionary, else by rules; a tag is one token."""

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__(TOKENS, " ".join(TOKENS).encode())  # whatever words the dictionary has
        self._dictionary = dictionary
        self._ids = {token: number for number, token in enumerate(TOKENS)}

    @classmethod
    def read(cls, path: Path) -> PhoneTokenizer:
        """Read ``pronunciations.txt``; AsrtoolError naming a malformed line."""
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
    """Write phones and pronunciations for the words of `sentences` to `out`.

    Raises AsrtoolError if the text cannot be read, a word has characters outside normalised text, or the package with
    the dictionary is missing.
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
