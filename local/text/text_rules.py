"""Mark-up to normalised text by tables of rules, which stand beside their corpora.

Normalised text is lower case: words of a-z and ', partial words that end or begin in -, and the tags [noise],
[laughter], [vocalized-noise]. docs/guide/text.md gives the reason for each choice.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Table = tuple[tuple[str, str], ...]

TAGS = ("[noise]", "[laughter]", "[vocalized-noise]")

# One spelling for each back-channel; NIST's mapping file equates the spellings of a line.
BACKCHANNELS = {
    **dict.fromkeys(
        ("um-hum", "um-hm", "um-hmm", "umhum", "mm-hm", "mm-hmm", "mm-hum", "mm-huh", "mmhm", "mhmm"), "mhm"
    ),
    **dict.fromkeys(("uh-hum", "uh-hmm", "uh-hm", "uhhuh"), "uh-huh"),
    **dict.fromkeys(("huh-uh", "huhuh", "uhuh"), "uh-uh"),
}
HYPHENATED = frozenset({"uh-huh", "uh-uh"})

# A degree with two letters in its first initial, as one initial for each letter.
DOCTORATE = (r"^ph\._?d\.?('?s)?$", r"p._h._d.\1")

# Dates and the like, 24/7 and 9/11, with a number of two digits; 1/2 would be a fraction.
DATE = (r"(?<![\w\[/])(?=\d?\d/\d\d|\d\d/)(\d\d?)/(\d\d?)(?![\w\]/])", r"\1-\2")

MAX_CACHED_WORDS = 2**17  # words whose normalised form is kept: most of a text are among its first few thousand

# Sounds that NIST's mapping file joins to %HESITATION.
HESITATIONS = frozenset(("ach", "ah", "eee", "eh", "er", "ew", "ha", "hee", "hm", "huh", "mm", "oof", "uh", "um"))


OTHER_LETTERS = "unknown characters"


class Unusable(Exception):
    """Utterance without normalised text; `reason` is short, for the list of drops."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, eq=False)
class Rules:
    """Rules for lines of one corpus, in order; patterns match lower-case text."""

    refuse: Table = ()  # pattern in the line -> reason for which the utterance is left out
    line: Table = ()  # pattern anywhere in the line -> replacement
    word: Table = ()  # pattern in one word -> replacement
    words: Mapping[str, str] = field(default_factory=dict)  # whole word -> words
    verbalise: Callable[[str], str] | None = None  # word with digits or symbols -> words
    acronyms: Mapping[str, str] = field(default_factory=dict)  # word that is spelled out -> letters: ibm -> i b m


# Custom text, after symbols are taken off.
PLAIN = Rules(word=((r"^'(.+)'$", r"\1"),))
# Marks of custom text and of Kaldi's; Kaldi's recipes give <unk> the phone of spoken noise.
_MARK = re.compile(r"[\[<]+[^\[\]<>\s]*[\]>]+")
MARKS = {
    **dict.fromkeys(("[laugh]", "<laugh>", "<laughter>"), "[laughter]"),
    **dict.fromkeys(("<noise>", "<nsn>", "[nsn]"), "[noise]"),
    **dict.fromkeys(
        ("<unk>", "[unk]", "<oov>", "<spn>", "[spn]", "<spoken_noise>", "<vocalized-noise>"), "[vocalized-noise]"
    ),
    **dict.fromkeys(("!sil", "[pause]", "[silence]", "<sil>", "[sil]", "<silence>", "<pause>"), ""),
}
TYPOGRAPHIC = str.maketrans(
    {**dict.fromkeys("\u2018\u2019\u02bc", "'"), **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014", "-")}
)

# Prefixes of Unicode's names of letters, in scripts without blanks between words.
NO_BLANKS = ("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN ")

_WORD = re.compile(r"-?'?[a-z]+(?:'[a-z]+)*'?-?")
_LETTER = re.compile(r"([a-z])\.('?s)?-?")
_EDGE = ',?!;:"'


def normalise(text: str, rules: Rules) -> str:
    """Normalise an utterance by `rules`; empty for silence.

    Raises Unusable with the reason.
    """
    text = text.lower()
    for pattern, reason in rules.refuse:
        if re.search(pattern, text):
            raise Unusable(reason, text)
    for pattern, replacement in rules.line:
        text = re.sub(pattern, replacement, text)
    return " ".join(itertools.chain.from_iterable(_normalise_word(word, rules) for word in text.split()))


def split_acronym(word: str) -> list[str]:
    """Split acronyms into letters; other words are unchanged.

    Examples: t._v.'s -> t v's, a._t._and_t. -> a t and t, u.s. -> u s.
    """
    parts = []
    for part in re.sub(r"(?<=\b[a-z]\.)(?=[a-z]\.)", "_", word).split("_"):
        letter = _LETTER.fullmatch(part)
        parts.append(letter[1] + ("'s" if letter[2] else "") if letter else part)
    return [part for part in parts if part]


@functools.lru_cache(MAX_CACHED_WORDS)
def _normalise_word(word: str, rules: Rules) -> list[str]:
    for pattern, replacement in rules.word:
        word = re.sub(pattern, replacement, word)
    word = rules.words.get(word, word)
    if (tag := word.strip(_EDGE + ".-")) in TAGS:
        return [tag]
    if re.search(r"[\[\]{}()<>/]", word):
        raise Unusable("unknown mark-up", word)
    word = _without_punctuation(word)
    if word in rules.acronyms:
        return rules.acronyms[word].split()
    words = rules.verbalise(word).split() if rules.verbalise else [word]
    pieces = [piece for each in words for part in split_acronym(each) for piece in _split_hyphens(part)]
    return [word for piece in pieces for word in _whole(piece, rules)]


def _whole(piece: str, rules: Rules) -> list[str]:
    """Return the words of a hyphenated part, as if it were alone."""
    piece = BACKCHANNELS.get(piece, piece)
    return rules.acronyms.get(piece, rules.words.get(piece, piece)).split()


def _without_punctuation(word: str) -> str:
    """Strip marks at a word's edges; the period of a letter (t., t._v.) stays."""
    stripped = word.strip(_EDGE)
    return stripped if re.search(r"(^|_)[a-z]\.", stripped) else stripped.strip(".")


def _split_hyphens(word: str) -> list[str]:
    """Split well-known -> well known; back-channels and partial words stay.

    Raises Unusable.
    """
    word = BACKCHANNELS.get(word, word)
    if word in HYPHENATED:
        return [word]
    inner = word.strip("-")
    if not re.search(r"\w", inner):
        return []
    pieces = [piece for piece in inner.split("-") if piece]
    pieces[0] = ("-" if word[0] == "-" else "") + pieces[0]
    pieces[-1] += "-" if word[-1] == "-" else ""
    for piece in pieces:
        if not _WORD.fullmatch(piece):
            raise Unusable(OTHER_LETTERS, piece)
    return pieces


def normalise_plain(text: str) -> str:
    """Normalise custom text: lower case, without punctuation and symbols but ' and -.

    Raises Unusable for letters or digits outside a-z, for bytes that are not UTF-8, and for an unknown mark in
    brackets, [so] or <so>.
    """
    refuse_broken(text)
    words = text.lower().translate(TYPOGRAPHIC).split()
    plain = " ".join(itertools.chain.from_iterable(map(_without_symbols, words)))
    try:
        return normalise(plain, PLAIN)
    except Unusable as error:
        if error.reason != OTHER_LETTERS:
            raise
        raise Unusable(error.reason, f"{error.detail}; data.text_rules = {_rules_for(plain)}") from None


def _rules_for(text: str) -> str:
    """Return the rules that can read `text`; unspaced scripts need characters."""
    if any(unicodedata.name(character, "").startswith(NO_BLANKS) for character in text):
        return "characters makes each character a word, for scripts without blanks between words"
    return "unicode takes any letters and digits"


def refuse_broken(text: str) -> None:
    """Raise Unusable if `text` was not UTF-8 when it was read."""
    if "\ufffd" in text:
        broken = next(word for word in text.split() if "\ufffd" in word)
        raise Unusable(OTHER_LETTERS, f"{broken} is not UTF-8; convert the text, for example with iconv")


def read_mark(word: str) -> list[str] | None:
    """Return the tags of a mark in lower case; None for a word.

    Raises Unusable for an unknown mark in brackets.
    """
    bare = word.strip(_EDGE + ".")
    if bare in TAGS:
        return [bare]
    known = MARKS.get(word, MARKS.get(bare) if _MARK.fullmatch(bare) else None)
    if known is None and _MARK.fullmatch(bare):
        raise Unusable("unknown mark-up", bare)
    return None if known is None else known.split()


@functools.lru_cache(MAX_CACHED_WORDS)
def _without_symbols(word: str) -> tuple[str, ...]:
    mark = read_mark(word)
    if mark is not None:
        return tuple(mark)
    return tuple("".join(c if c in "'-" or unicodedata.category(c)[0] not in "PS" else " " for c in word).split())
