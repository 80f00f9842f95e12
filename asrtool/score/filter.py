"""The filter NIST applies to both sides before scoring (csrfilt): case, mapping rules, hyphens, alternatives.

Words of ``wor-`` and ``-ord`` stay whole, other hyphenated words are split; an optional group ``(A B)`` becomes
``(A) (B)``. A ctm word that turns into several shares its time among them; alternatives become a block between
``<ALT_BEGIN>`` and ``<ALT_END>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from asrtool.score.ctm import ALT, ALT_BEGIN, ALT_END, CtmWord
from asrtool.score.glm import RuleSet
from asrtool.score.lines import Place, lower, split, upper
from asrtool.score.stm import StmSegment

_OPTIONAL = re.compile(r"\([^()]*[^() ][^()]*\)")
_HYPHEN = re.compile(r"([^( ])-(?=[^) ])")
_OPTIONAL_TAIL = re.compile(r"(\( +[^() ]+ +)([^() ]+)")
_NUMBER = re.compile(r"[0-9.-]*", re.ASCII)


class TimedWord(NamedTuple):
    """A word of a filtered ctm, lower case; times in seconds."""

    text: str
    start_s: float
    duration_s: float

    @property
    def is_mark(self) -> bool:
        """Whether it is no word but a mark of alternatives."""
        return self.text.startswith("<alt")


def filter_segment(segment: StmSegment, rules: RuleSet | None) -> str:
    """The filtered text of a segment, lower case."""
    return lower(_filter(f" {segment.text} " if segment.text else " ", rules, segment.place))


def filter_ctm(words: Iterable[CtmWord], rules: RuleSet | None) -> Iterator[tuple[CtmWord, TimedWord]]:
    """The filtered words, each with the line it comes from."""
    known: dict[tuple[str, bool], list[list[str]] | str] = {}
    for word in words:
        key = word.word, bool(word.confidence)
        if key not in known:
            known[key] = _alternatives(_filter(word.word, rules, word.place), word)
        filtered = known[key]
        if isinstance(filtered, str):
            yield word, TimedWord(filtered, word.start_s, word.duration_s)
        else:
            for timed in _share_time(word, filtered):
                yield word, timed


def _filter(text: str, rules: RuleSet | None, place: Place) -> str:
    if ("(" in text or ")" in text) and set("()") & set(_OPTIONAL.sub("", text)):
        place.fail(f"parentheses in {text.strip()!r}", "(WORD) around optional words, not nested, not empty")
    text = upper(text).replace("(", "( ").replace(")", " )")
    text = f" {text} "
    if rules:
        text = rules.apply(text)
    text = _HYPHEN.sub(r"\1 ", text)
    while _OPTIONAL_TAIL.search(text):
        text = _OPTIONAL_TAIL.sub(r"\1) ( \2", text, count=1)
    return re.sub(r"\( +", "(", re.sub(r" +\)", ")", text))


def _alternatives(text: str, word: CtmWord) -> list[list[str]] | str:
    """What a ctm word turned into: words of each alternative, or the one word of a line left as it was.

    The last token passes for the confidence where it looks like a number, and a confidence without word for the word:
    so does csrfilt, and counts must be those it leads to.
    """
    tokens = split(lower(text).replace("{", " { ").replace("}", " } "))
    if word.confidence:
        tokens.append(word.confidence)
    if len(tokens) == 1:
        return tokens[0]
    if tokens and _NUMBER.fullmatch(tokens[-1]):
        tokens.pop()
    alternatives = " ".join(tokens).split("/")
    while alternatives and not alternatives[-1]:
        alternatives.pop()
    words = [split(alternative.replace("{", "").replace("}", "")) for alternative in alternatives]
    if not all(words):
        word.place.fail(f"{word.word!r} has an empty alternative", "@ for nothing")
    return words


def _share_time(word: CtmWord, alternatives: list[list[str]]) -> Iterator[TimedWord]:
    """Spread the time of a ctm word over the words of each alternative."""
    if len(alternatives) == 1:
        yield from _spread(word, alternatives[0])
        return
    for number, texts in enumerate(alternatives):
        yield TimedWord(lower(ALT if number else ALT_BEGIN), 0.0, 0.0)
        yield from _spread(word, texts)
    if alternatives:
        yield TimedWord(lower(ALT_END), 0.0, 0.0)


def _spread(word: CtmWord, texts: list[str]) -> Iterator[TimedWord]:
    duration_s = word.duration_s / len(texts)
    for number, text in enumerate(texts):
        # Three decimals, because csrfilt hands the words over as a file.
        yield TimedWord(text, round(word.start_s + duration_s * number, 3), round(duration_s, 3))
