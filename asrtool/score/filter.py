"""Filter that NIST applies to both sides before scoring (csrfilt).

It changes case, applies mapping rules, splits hyphenated words (``wor-`` and ``-ord`` stay whole), and writes an
optional group ``(A B)`` as ``(A) (B)``. A ctm word that becomes several shares its time among them. Alternatives
become a block between ``<ALT_BEGIN>`` and ``<ALT_END>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from asrtool.score.glm import RuleSet
from asrtool.score.lines import Location, lower, split, upper
from asrtool.score.stm_ctm import ALT, ALT_BEGIN, ALT_END, CtmWord, StmSegment

_OPTIONAL = re.compile(r"\([^()]*[^() ][^()]*\)")
_HYPHEN = re.compile(r"([^( ])-(?=[^) ])")
_OPTIONAL_TAIL = re.compile(r"(\([ \t]+[^() \t]+[ \t]+)([^() \t]+)")  # a tab may come from a rule
_OPENING, _CLOSING = re.compile(r"\([ \t]+"), re.compile(r"[ \t]+\)")
_NUMBER = re.compile(r"[0-9.-]*", re.ASCII)

# A word of a filtered ctm or a mark of alternatives, lower case, and its midpoint in seconds from the start of the file
HypWord = tuple[str, float]


class _Filtered(NamedTuple):
    """Words of each alternative that a ctm word became."""

    alternatives: list[list[str]]
    untouched: bool  # csrfilt leaves the line, with its times


def filter_segment(segment: StmSegment, rules: RuleSet | None) -> str:
    """Return the filtered text of a segment in lower case.

    Raises AsrtoolError for text that cannot be read or written back.
    """
    text = lower(_filter(f" {segment.text} " if segment.text else " ", rules, segment.location))
    words = split(text)
    if words and not text.startswith("  "):  # csrfilt drops the first space and writes the rest after the time
        segment.location.fail(
            f"a rule makes {words[0]!r} of the space before the first word, which SCTK joins to END",
            "rules whose source begins with a letter, [A] => [B] / [ ] __ [ ]",
        )
    return text


class CtmFilter:
    """Filter of the words of a ctm; each distinct word is parsed once."""

    def __init__(self, path: Path, rules: RuleSet | None) -> None:
        self._path, self._rules = path, rules
        self._known: dict[tuple[str, bool], _Filtered] = {}

    def apply(self, words: Iterable[CtmWord]) -> list[HypWord]:
        """Return the filtered words of one side; AsrtoolError if one cannot be read."""
        filtered_words: list[HypWord] = []
        for word in words:
            key = word.word, word.confidence != ""
            filtered = self._known.get(key)
            if filtered is None:
                location = Location(self._path, word.line)
                filtered = self._known[key] = _take_apart(_filter(word.word, self._rules, location), word, location)
            alternatives, untouched = filtered
            if untouched:
                text = alternatives[0][0] or word.confidence
                filtered_words.append((text, word.start_s + word.duration_s / 2))
            elif len(alternatives) == 1 and len(alternatives[0]) == 1:
                filtered_words.append((alternatives[0][0], round(word.start_s, 3) + round(word.duration_s, 3) / 2))
            elif len(alternatives) == 1:
                filtered_words += zip(alternatives[0], _middles_s(word, len(alternatives[0])), strict=True)
            elif alternatives:
                filtered_words += _block(word, alternatives)
        return filtered_words


def _filter(text: str, rules: RuleSet | None, location: Location) -> str:
    has_optional = "(" in text or ")" in text
    if has_optional and set("()") & set(_OPTIONAL.sub("", text)):
        location.fail(f"parentheses in {text.strip()!r}", "(WORD) around optional words, not nested, not empty")
    text = f" {upper(text)} "
    if has_optional:
        text = text.replace("(", "( ").replace(")", " )")
    if rules:
        text = rules.apply(text)
    if "-" in text:
        text = _HYPHEN.sub(r"\1 ", text)
    if "(" in text or ")" in text:
        while _OPTIONAL_TAIL.search(text):
            text = _OPTIONAL_TAIL.sub(r"\1) ( \2", text, count=1)
        text = _OPENING.sub("(", _CLOSING.sub(")", text))
    return text


def _take_apart(text: str, word: CtmWord, location: Location) -> _Filtered:
    """Read a filtered word.

    The last token counts as the confidence if it looks like a number, and a confidence without word for the word:
    so does csrfilt, and counts must be those it leads to.
    """
    tokens = split(lower(text).replace("{", " { ").replace("}", " } "))
    if len(tokens) + bool(word.confidence) == 1:
        return _Filtered([tokens or [""]], untouched=True)
    if not word.confidence and tokens and _NUMBER.fullmatch(tokens[-1]):
        tokens.pop()
    alternatives = " ".join(tokens).split("/")
    while alternatives and not alternatives[-1]:
        alternatives.pop()
    words = [split(alternative.replace("{", "").replace("}", "")) for alternative in alternatives]
    if not all(words):
        location.fail(f"{word.word!r} has an empty alternative", "@ for nothing")
    return _Filtered(words, untouched=False)


def _middles_s(word: CtmWord, num_words: int) -> list[float]:
    """Return midpoints of the words that share the time of a ctm word."""
    # Three decimals, because csrfilt hands the words over as a file.
    duration_s = word.duration_s / num_words
    half_s = round(duration_s, 3) / 2
    return [round(word.start_s + duration_s * number, 3) + half_s for number in range(num_words)]


def _block(word: CtmWord, alternatives: list[list[str]]) -> list[HypWord]:
    """Return alternatives with their marks; all get the latest midpoint."""
    texts: list[str] = []
    for words in alternatives:
        texts += [lower(ALT if texts else ALT_BEGIN), *words]
    middle_s = max([0.0, *(max(_middles_s(word, len(words))) for words in alternatives)])  # sclite begins at 0
    return [(text, middle_s) for text in [*texts, lower(ALT_END)]]
