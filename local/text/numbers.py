"""Spoken forms of words with digits: 401k -> four oh one k, 1st -> first."""

from __future__ import annotations

import re

DIGITS = ("oh", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEENS = ("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ROUND = ("hundred", "thousand")
ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
_NAME = re.compile(r"'?([a-z]{0,2})([0-9]+)([a-rt-z]?)('?s)?")
_DECADE = re.compile(r"'?([1-9][0-9]?)?([2-9])0'?s")
_ROUNDS = re.compile(r"'?([1-9])0(0?)0'?s")
_ORDINAL = re.compile(r"'?([1-9][0-9]?)(?:st|nd|rd|th)((?:'?s)?)")
_LETTERS = re.compile(r"([a-z]{1,2})('?s)?")


def verbalise(word: str) -> str:
    """Return the spoken form of `word`, or the word if it has none.

    Transcripts mostly write numbers in words. Two digits are a number, four are two numbers, as in years, others are
    single digits; decades, hundreds and ordinals up to 99th are spoken as such. One or two letters beside digits or an
    ampersand are spelled. A partial word is spoken as far as it goes.
    """
    if "&" in word:
        return " and ".join(map(_side, word.strip("-").split("&"))).strip()
    if not re.search("[0-9]", word):
        return word
    return " ".join(map(_verbalise_piece, filter(None, word.split("-"))))


def _side(part: str) -> str:
    """Return the spoken form of one side of an ampersand."""
    found = _LETTERS.fullmatch(part)
    return " ".join(found[1]) + ("'s" if found[2] else "") if found else part


def _verbalise_piece(piece: str) -> str:
    if decade := _DECADE.fullmatch(piece):
        decades = TENS[int(decade[2]) - 2].removesuffix("y") + "ies"
        return f"{_verbalise_number(decade[1])} {decades}" if decade[1] else decades
    if rounds := _ROUNDS.fullmatch(piece):
        words = f"{ROUND[bool(rounds[2])]}s"
        return words if rounds[1] == "1" else f"{_verbalise_number(rounds[1])} {words}"
    if ordinal := _ORDINAL.fullmatch(piece):
        return _as_ordinal(_verbalise_number(ordinal[1])) + ordinal[2]
    found = _NAME.fullmatch(piece)
    if not found:
        return piece
    words = " ".join((*found[1], _verbalise_digits(found[2]), *found[3]))
    plural = "s" if words.endswith(ROUND) else "'s"
    return words + plural if found[4] else words


def _as_ordinal(words: str) -> str:
    """Return the ordinal of a number in words."""
    before, blank, last = words.rpartition(" ")
    return before + blank + ORDINALS.get(last, f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th")


def _verbalise_digits(digits: str) -> str:
    if digits[0] == "0" or len(digits) not in (2, 4):
        return " ".join(DIGITS[int(digit)] for digit in digits)
    pair, rest = digits[:2], digits[2:]
    if not rest:
        return _verbalise_number(pair)
    hundred, thousand = ROUND
    if pair[1] == rest[0] == "0":
        return " ".join((DIGITS[int(pair[0])], thousand, *([] if rest == "00" else [DIGITS[int(rest[1])]])))
    if rest == "00":
        return f"{_verbalise_number(pair)} {hundred}"
    return f"{_verbalise_number(pair)} {_verbalise_digits(rest)}"


def _verbalise_number(digits: str) -> str:
    """Return the words of a number from 1 to 99."""
    if len(digits) == 1:
        return DIGITS[int(digits)]
    if digits[0] == "1":
        return TEENS[int(digits[1])]
    ten = TENS[int(digits[0]) - 2]
    return ten if digits[1] == "0" else f"{ten} {DIGITS[int(digits[1])]}"
