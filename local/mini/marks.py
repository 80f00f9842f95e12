"""Marks of transcribers: partial, laughed, coined, uncertain words, asides.

A sentence becomes tokens; each corpus layout writes them in its own mark-up.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from asrtool.local.mini.sounds import ALONE, IN_SPEECH


@dataclass(frozen=True)
class Token:
    """A word or a sound.

    `kind` is word, partial (beginning heard), tail (end heard), mispronounced, laughed, coined, uncertain, aside, or
    one of the sounds, whose `word` is empty. `heard` spells what was said where it differs from `word`.
    """

    word: str
    kind: str = "word"
    heard: str = ""

    @property
    def is_sound(self) -> bool:
        return self.kind in IN_SPEECH or self.kind in ALONE


PARTIALS = {  # word: (part heard, how espeak-ng is made to say it)
    "the": ("th", "thuh"),
    "think": ("th", "thih"),
    "went": ("we", "weh"),
    "because": ("be", "bih"),
    "really": ("re", "ree"),
    "what": ("wh", "wuh"),
    "about": ("a", "uh buh"),
    "like": ("l", "lie"),
    "my": ("m", "muh"),
    "have": ("ha", "hah"),
    "was": ("w", "wuh"),
    "to": ("t", "tuh"),
}
TAILS = {"because": ("cause", "cuz"), "about": ("bout", "bout")}
MISPRONOUNCED = {  # word: as heard; espeak-ng says it as it is spelled
    "probably": "probly",
    "interested": "intrested",
    "government": "goverment",
    "football": "foobaw",
    "really": "reely",
    "terrible": "tebble",
    "yesterday": "yestiday",
    "somebody": "summody",
    "mountains": "mounens",
    "computer": "puter",
    "sister": "sissa",
    "about": "abowd",
}
ADJECTIVES = ("nice", "good", "cheap", "cold", "hot", "hard", "fun", "terrible", "beautiful")
COINED = ("gardeny", "fishable", "footbally", "beachish")
ASIDES = ("hold on", "hold on i'm on the phone")
SAID = {  # words that espeak-ng would spell out or stress wrongly
    "uh-huh": "uh huh",
    "mhm": "um hum",
    "um-hum": "um hum",
    "t._v.": "tee vee",
    "uh": "uhh",
    "gonna": "gunna",
}
MARKS = ("partial", "laughed", "tail", "uncertain", "mispronounced", "aside", "coined", *IN_SPEECH)
ABLE: dict[str, Container[str]] = {  # words that can bear a mark; any word can bear the others
    "partial": PARTIALS,
    "tail": TAILS,
    "mispronounced": MISPRONOUNCED,
    "coined": ADJECTIVES,
}


def spoken_form(token: Token) -> str:
    """Return the text for espeak-ng of a token that is not a sound."""
    if token.kind == "partial":
        return PARTIALS[token.word][1]
    if token.kind == "tail":
        return TAILS[token.word][1]
    return token.heard or SAID.get(token.word, token.word)


def as_tokens(words: Sequence[str]) -> list[Token]:
    """Return words as tokens without marks."""
    return [Token(word) for word in words]


def add_mark(tokens: list[Token], mark: str, rng: np.random.Generator) -> list[Token] | None:
    """Return `tokens` with one more `mark`, or None if no word can bear it."""
    if mark in IN_SPEECH:
        at = int(rng.integers(len(tokens) + 1))
        return [*tokens[:at], Token("", mark), *tokens[at:]]
    if mark == "aside":
        return [Token(word, mark) for word in ASIDES[int(rng.integers(len(ASIDES)))].split()] + tokens
    places = _bearers(tokens, mark)
    if not places:
        return None
    at = places[int(rng.integers(len(places)))]
    word = tokens[at].word
    if mark == "partial":  # the speaker breaks off and says the word again
        return [*tokens[:at], Token(word, mark, PARTIALS[word][0]), *tokens[at:]]
    if mark == "coined":
        return [*tokens[:at], Token(COINED[int(rng.integers(len(COINED)))], mark), *tokens[at + 1 :]]
    heard = {"tail": TAILS.get(word, ("",))[0], "mispronounced": MISPRONOUNCED.get(word, "")}.get(mark, "")
    return [*tokens[:at], Token(word, mark, heard), *tokens[at + 1 :]]


def _bearers(tokens: list[Token], mark: str) -> list[int]:
    """Return indices of the words that can bear `mark`."""
    able = ABLE.get(mark)
    return [i for i, token in enumerate(tokens) if token.kind == "word" and (able is None or token.word in able)]
