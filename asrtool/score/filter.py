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


def filter_segment(segment: StmSegment, rules: RuleSet | None) -> str:
    """The filtered text of a segment, lower case."""
    return lower(_filter(f" {segment.text} " if segment.text else " ", rules, segment.place))


def filter_ctm(words: Iterable[CtmWord], rules: RuleSet | None) -> Iterator[tuple[CtmWord, TimedWord]]:
    """The filtered words, each with the line it comes from."""
    filtered: dict[str, str] = {}
    for word in words:
        if word.word not in filtered:
            filtered[word.word] = _filter(word.word, rules, word.place)
        for timed in _share_time(word, filtered[word.word]):
            yield word, timed


def _filter(text: str, rules: RuleSet | None, place: Place) -> str:
    if set("()") & set(_OPTIONAL.sub("", text)):
        place.fail(f"parentheses in {text.strip()!r}", "(WORD) around optional words, not nested, not empty")
    text = upper(text).replace("(", "( ").replace(")", " )")
    text = f" {text} "
    if rules:
        text = rules.apply(text)
    text = _HYPHEN.sub(r"\1 ", text)
    while _OPTIONAL_TAIL.search(text):
        text = _OPTIONAL_TAIL.sub(r"\1) ( \2", text, count=1)
    return re.sub(r"\( +", "(", re.sub(r" +\)", ")", text))


def _share_time(word: CtmWord, text: str) -> Iterator[TimedWord]:
    """Spread the time of a ctm word over its filtered text.

    The last token passes for the confidence where it looks like a number, and a confidence without word for the word:
    so does csrfilt, and counts must be those it leads to.
    """
    tokens = split(text.replace("{", " { ").replace("}", " } "))
    if word.confidence:
        tokens.append(word.confidence)
    if len(tokens) == 1:
        yield TimedWord(lower(tokens[0]), word.start_s, word.duration_s)
        return
    if tokens and _NUMBER.fullmatch(tokens[-1]):
        tokens.pop()
    alternatives = " ".join(tokens).split("/")
    while alternatives and not alternatives[-1]:
        alternatives.pop()
    for number, alternative in enumerate(alternatives):
        if len(alternatives) > 1:
            yield TimedWord(lower(ALT if number else ALT_BEGIN), 0.0, 0.0)
        yield from _spread(word, split(alternative.replace("{", "").replace("}", "")))
    if len(alternatives) > 1:
        yield TimedWord(lower(ALT_END), 0.0, 0.0)


def _spread(word: CtmWord, texts: list[str]) -> Iterator[TimedWord]:
    if not texts:
        word.place.fail(f"{word.word!r} has an empty alternative", "@ for nothing")
    duration_s = word.duration_s / len(texts)
    for number, text in enumerate(texts):
        # Three decimals, because csrfilt hands the words over as a file.
        yield TimedWord(lower(text), float(f"{word.start_s + duration_s * number:.3f}"), float(f"{duration_s:.3f}"))
