"""Texts as networks of words: ``{ A / B }`` alternatives, ``@`` nothing, ``word;tag`` tags, a backslash escapes.

Follows sclite, whose reading of odd texts is part of the counts it gives.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from asrtool.score.ctm import ALT, ALT_BEGIN, ALT_END
from asrtool.score.filter import TimedWord
from asrtool.score.lines import Place, lower
from asrtool.score.network import NULL, Network, Parts, Word, make_network, make_word

_BEGIN, _ALT, _END = lower(ALT_BEGIN), lower(ALT), lower(ALT_END)
_IGNORE = "ignore_time_segment_in_scoring"
_TAG = re.compile(r"(?<!\\);")


def is_ignored(text: str) -> bool:
    """Whether a filtered reference text says that its time is not scored."""
    return _IGNORE in text


def read_reference(text: str, place: Place) -> Network:
    """The network of a filtered reference text; raises AsrtoolError for braces that do not pair."""
    return make_network(_parse(text, place))


def read_hypothesis(words: Sequence[TimedWord]) -> Network:
    """The network of the filtered words of a segment."""
    parts: Parts = []
    position = 0
    while position < len(words):
        if is_mark(words[position]):
            position = _add_block(parts, words, position)
        else:
            parts.append(_word(words[position].text))
        position += 1
    return make_network(parts)


def is_mark(word: TimedWord) -> bool:
    """Whether a filtered ctm word is a mark of alternatives."""
    return word.text.startswith("<alt")


def _parse(text: str, place: Place) -> Parts:
    parts: Parts = []
    position = 0
    for match in re.finditer(r"[^ {][^ ]*|\{", text):
        if match.start() < position:
            continue  # within alternatives
        position = match.end()
        if match.group() != "{":
            if set("{}") & set(match.group()):
                place.fail(f"brace in {match.group()!r}", "spaces around { and }, as many { as }")
            parts.append(_word(match.group()))
            continue
        position = _closing(text, match.start(), place) + 1
        parts.append(_alternatives(text[match.end() : position - 1], place))
    return parts


def _closing(text: str, opening: int, place: Place) -> int:
    depth = 0
    for match in re.finditer("[{}]", text[opening:]):
        depth += 1 if match.group() == "{" else -1
        if not depth:
            return opening + match.start()
    return place.fail(f"{{ without }} in {text.strip()!r}", "{ A / B }")


def _alternatives(inner: str, place: Place) -> list[Parts]:
    inner = _TAG.split(inner)[0].replace("\\", "")
    texts, depth = [""], 0
    for character in inner:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "/" and not depth:
            texts.append("")
        else:
            texts[-1] += character
    alternatives = [_parse(text, place) for text in texts if text.strip(" ")]
    if not alternatives:
        place.fail("no alternative between { and }", "{ A / B }")
    return alternatives


def _word(token: str) -> Word:
    return make_word(_TAG.split(token)[0].replace("\\", ""))


def _add_block(parts: Parts, words: Sequence[TimedWord], position: int) -> int:
    """Add the alternatives that begin at `position`; returns the position of their last mark.

    An empty alternative stands for nothing and swallows the mark after it, as in sclite.
    """
    size = len(words)
    while position < size and words[position].text == _BEGIN:
        position += 1
    alternatives: list[Parts] = []
    while True:
        alternative: Parts = []
        while position < size and not is_mark(words[position]):
            alternative.append(_word(words[position].text))
            position += 1
        if not alternative:
            alternative = [make_word(NULL)]
            position += 1
        alternatives.append(alternative)
        at_end = position >= size or words[position].text == _END
        last_is_empty = (
            not at_end
            and words[position].text == _ALT
            and words[position + 1 : position + 2]
            and (words[position + 1].text == _END)
        )
        if not at_end and not last_is_empty:
            position += 1
        if position >= size or words[position].text == _END:
            parts.append(alternatives)
            return position
