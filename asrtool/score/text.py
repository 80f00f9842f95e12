"""Parse texts to networks of words, as sclite does.

``{ A / B }`` are alternatives, ``@`` is nothing, ``word;tag`` has a tag, a backslash escapes.
"""

from __future__ import annotations

import re

from asrtool.score.formats.ctm import ALT, ALT_BEGIN, ALT_END
from asrtool.score.formats.lines import Place, lower, split
from asrtool.score.network import NULL, Network, Parts, Word, make_chain, make_network, make_word

_MARK, _BEGIN, _ALT, _END = "<alt", lower(ALT_BEGIN), lower(ALT), lower(ALT_END)
_IGNORE = "ignore_time_segment_in_scoring"
_NEXT = re.compile(r"[^ {][^ ]*|\{")
_TAG = re.compile(r"(?<!\\);")
_MAX_DEPTH = 50


def is_ignored(text: str) -> bool:
    """Return whether a filtered reference text excludes its time from scoring."""
    return _IGNORE in text


def is_mark(text: str) -> bool:
    """Return whether a filtered ctm word is a mark of alternatives."""
    return text.startswith(_MARK)


def read_reference(text: str, place: Place) -> Network:
    """Parse a filtered reference text; AsrtoolError for unpaired braces."""
    if "{" in text or "}" in text:
        return make_network(_parse(text, place, 0))
    return make_chain(_words(split(text), text))


def read_hypothesis(texts: list[str]) -> Network:
    """The network of the filtered ctm words of a segment."""
    text = " ".join(texts)
    if _MARK not in text:
        return make_chain(_words(texts, text))
    parts: Parts = []
    position = 0
    while position < len(texts):
        if is_mark(texts[position]):
            position = _add_block(parts, texts, position)
        else:
            parts.append(_word(texts[position]))
        position += 1
    return make_network(parts)


def _parse(text: str, place: Place, depth: int) -> Parts:
    if "{" not in text and "}" not in text:
        return [_word(token) for token in split(text)]
    parts: Parts = []
    position = 0
    while match := _NEXT.search(text, position):
        token, position = match.group(), match.end()
        if token == "{":
            end = _closing(text, match.start(), place)
            parts.append(_alternatives(text[position:end], place, depth + 1))
            position = end + 1  # a word may follow without a space
        else:
            if set("{}") & set(token):
                place.fail(f"brace in {token!r}", "spaces around { and }, as many { as }")
            parts.append(_word(token))
    return parts


def _closing(text: str, opening: int, place: Place) -> int:
    depth = 0
    for match in re.finditer("[{}]", text[opening:]):
        depth += 1 if match.group() == "{" else -1
        if not depth:
            return opening + match.start()
    return place.fail(f"{{ without }} in {text.strip()!r}", "{ A / B }")


def _alternatives(inner: str, place: Place, depth: int) -> list[Parts]:
    if depth > _MAX_DEPTH:
        place.fail(f"alternatives within more than {_MAX_DEPTH} others", "{ A / B }")
    inner = _TAG.split(inner)[0].replace("\\", "")
    texts, num_open = [""], 0
    for character in inner:
        num_open += {"{": 1, "}": -1}.get(character, 0)
        if character == "/" and not num_open:
            texts.append("")
        else:
            texts[-1] += character
    alternatives = [_parse(text, place, depth) for text in texts if text.strip(" ")]
    if not alternatives:
        place.fail("no alternative between { and }", "{ A / B }")
    return alternatives


def _words(tokens: list[str], text: str) -> list[Word]:
    """The words of `text`, which `tokens` make up."""
    if ";" in text or "\\" in text:
        return [_word(token) for token in tokens]
    return [make_word(token) for token in tokens]


def _word(token: str) -> Word:
    return make_word(_TAG.split(token)[0].replace("\\", "") if ";" in token or "\\" in token else token)


def _add_block(parts: Parts, texts: list[str], position: int) -> int:
    """Add the alternatives at `position`; return the position of their last mark.

    An empty alternative is nothing and swallows the mark after it, as in sclite.
    """
    while texts[position : position + 1] == [_BEGIN]:
        position += 1
    alternatives: list[Parts] = []
    while True:
        start = position
        while position < len(texts) and not is_mark(texts[position]):
            position += 1
        words: Parts = [_word(text) for text in texts[start:position]]
        if not words:
            words = [make_word(NULL)]
            position += 1
        alternatives.append(words)
        if texts[position : position + 1] != [_END] and texts[position : position + 2] != [_ALT, _END]:
            position += 1
        if position >= len(texts) or texts[position] == _END:
            parts.append(alternatives)
            return position
