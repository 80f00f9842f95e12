"""Words as phones: a dictionary of pronunciations, and what stands in for words that it lacks."""

from __future__ import annotations

import importlib.metadata
import itertools
import re
from collections.abc import Mapping
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.lang.letter_to_sound import LETTER_NAMES, sound_letters

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
    """Read the CMU Pronouncing Dictionary, which has no stress here: lower-case word -> pronunciations.

    The package ``pocketsphinx`` brings it as a file. Raises AsrtoolError if that is not installed.
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
    """The pronunciations of a word of a-z, ' and -: at least one, and never an empty one.

    Those of `dictionary`; else of its parts, of the word it is inflected from, or as its letters are read.
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
    """The pronunciations of a word of `dictionary` with one of ENDINGS, none when there is no such word."""
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
    """The phones of an ending behind the phone `before`: cats, dogs, horses; liked, lived, wanted."""
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
