"""How words with digits and ampersands are said: 401k -> four oh one k, at&t -> a t and t."""

from __future__ import annotations

import re

DIGITS = ("oh", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEENS = ("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NAME = re.compile(r"'?([a-z]{0,2})([0-9]+)([a-z]?)((?:'s)?)")
_DECADE = re.compile(r"'?([2-9])0'?s")
_LETTERS = re.compile(r"([a-z]{1,2})('?s)?")


def say(word: str) -> str:
    """`word` in words, where it has digits or an ampersand in a way that is known; otherwise as it is.

    Transcripts of conversations write numbers in words. Digits are left in names, where a group of two is said as a
    number and others digit by digit, and one or two letters beside them or beside an ampersand by their names.
    """
    if "&" in word:
        return " and ".join(map(_side, word.split("&"))).strip()
    if not re.search("[0-9]", word):
        return word
    return " ".join(map(_say_piece, filter(None, word.split("-"))))


def _side(part: str) -> str:
    """What stands on one side of an ampersand."""
    found = _LETTERS.fullmatch(part)
    return " ".join(found[1]) + ("'s" if found[2] else "") if found else part


def _say_piece(piece: str) -> str:
    if decade := _DECADE.fullmatch(piece):
        return TENS[int(decade[1]) - 2].removesuffix("y") + "ies"
    found = _NAME.fullmatch(piece)
    return " ".join((*found[1], _say_digits(found[2]), *found[3])) + found[4] if found else piece


def _say_digits(digits: str) -> str:
    if len(digits) != 2 or digits[0] == "0":
        return " ".join(DIGITS[int(digit)] for digit in digits)
    if digits[0] == "1":
        return TEENS[int(digits[1])]
    ten = TENS[int(digits[0]) - 2]
    return ten if digits[1] == "0" else f"{ten} {DIGITS[int(digits[1])]}"
