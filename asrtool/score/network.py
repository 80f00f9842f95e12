"""Networks of words with alternatives, which are aligned, and their texts.

An arc has a word; arc 0 is an empty one before the first word. The order of the arcs decides between paths of equal
cost, so it is the order of the text. In a text ``{ A / B }`` are alternatives, ``@`` is nothing, ``word;tag`` has a
tag, a backslash escapes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from asrtool.score.lines import Location, lower, split
from asrtool.score.stm_ctm import ALT, ALT_BEGIN, ALT_END

NULL = "@"
_MARK, _BEGIN, _ALT, _END = "<alt", lower(ALT_BEGIN), lower(ALT), lower(ALT_END)
_IGNORE = "ignore_time_segment_in_scoring"
_NEXT = re.compile(r"[^ {][^ ]*|\{")
_TAG = re.compile(r"(?<!\\);")
_MAX_DEPTH = 50
Arcs = tuple[int, ...]


class Word(NamedTuple):
    """A word as it is compared: `text` without the parentheses of an optional word."""

    text: str
    optional: bool = False
    fragment: bool = False
    null: bool = False  # the empty alternative

    def __str__(self) -> str:
        return f"({self.text})" if self.optional else self.text


Part = Word | list["Parts"]  # a word, or alternatives
Parts = list[Part]
_START = Word("")


@dataclass
class Network:
    """Arcs of words; an arc follows the one before it unless `joins` names others.

    `ends` are the last arcs.
    """

    words: list[Word]
    joins: dict[int, Arcs]
    ends: Arcs

    def before(self, arc: int) -> Arcs:
        """Return the arcs into `arc`, which is not 0."""
        return self.joins.get(arc) or (arc - 1,)

    @property
    def is_plain(self) -> bool:
        """Absence of alternatives and of words with a meaning."""
        return not self.joins and not any(word.optional or word.fragment or word.null for word in self.words)

    @property
    def has_null(self) -> bool:
        return any(word.null for word in self.words)


@functools.lru_cache(1 << 16)
def make_word(token: str) -> Word:
    """Parse the marks of a token.

    ``(word)`` is optional, ``wor-`` or ``-ord`` a fragment, ``@`` the empty alternative. A final ``*`` is dropped.
    """
    if len(token) > 1 and token.endswith("*"):
        token = token[:-1]
    optional = len(token) > 1 and token.startswith("(") and token.endswith(")")
    fragment = token.startswith("-") or token.endswith("-") or (optional and token[-2] == "-")
    return Word(token[1:-1] if optional else token, optional, fragment, token == NULL)


def same_word(ref: Word, hyp: Word) -> bool:
    """Return whether words are equal or one is a fragment of the other.

    ``th-`` matches ``the``, ``-an`` matches ``than``.
    """
    if ref.fragment or hyp.fragment:
        for one, other in ((ref.text, hyp.text), (hyp.text, ref.text)):
            if len(one) > 1 and one.startswith("-"):
                return other.endswith(one[1:])
            if len(one) > 1 and one.endswith("-"):
                return other.startswith(one[:-1])
    return ref.text == hyp.text


def make_chain(words: Sequence[Word]) -> Network:
    """Return the network of words without alternatives."""
    return Network([_START, *words], {}, (len(words),))


def make_network(parts: Sequence[Part]) -> Network:
    """Return the network of a text."""
    network = Network([_START], {}, (0,))
    network.ends = _add(network, parts, (0,))
    return network


def _add(network: Network, parts: Sequence[Part], before: Arcs) -> Arcs:
    for part in parts:
        if isinstance(part, Word):
            arc = len(network.words)
            if before != (arc - 1,):
                network.joins[arc] = before
            network.words.append(part)
            before = (arc,)
        else:
            before = tuple(end for alternative in part for end in _add(network, alternative, before))
    return before


def is_ignored(text: str) -> bool:
    """Return whether a filtered reference text excludes its time from scoring."""
    return _IGNORE in text


def is_mark(text: str) -> bool:
    """Return whether a filtered ctm word is a mark of alternatives."""
    return text.startswith(_MARK)


def read_reference(text: str, location: Location) -> Network:
    """Parse a filtered reference text; AsrtoolError for unpaired braces."""
    if "{" in text or "}" in text:
        return make_network(_parse(text, location, 0))
    return make_chain(_words(split(text), text))


def read_hypothesis(texts: list[str]) -> Network:
    """Make the network of the filtered ctm words of a segment."""
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


def _parse(text: str, location: Location, depth: int) -> Parts:
    if "{" not in text and "}" not in text:
        return [_word(token) for token in split(text)]
    parts: Parts = []
    position = 0
    while match := _NEXT.search(text, position):
        token, position = match.group(), match.end()
        if token == "{":
            end = _closing(text, match.start(), location)
            parts.append(_alternatives(text[position:end], location, depth + 1))
            position = end + 1  # a word may follow without a space
        else:
            if set("{}") & set(token):
                location.fail(f"brace in {token!r}", "spaces around { and }, as many { as }")
            parts.append(_word(token))
    return parts


def _closing(text: str, opening: int, location: Location) -> int:
    depth = 0
    for match in re.finditer("[{}]", text[opening:]):
        depth += 1 if match.group() == "{" else -1
        if not depth:
            return opening + match.start()
    return location.fail(f"{{ without }} in {text.strip()!r}", "{ A / B }")


def _alternatives(inner: str, location: Location, depth: int) -> list[Parts]:
    if depth > _MAX_DEPTH:
        location.fail(f"alternatives within more than {_MAX_DEPTH} others", "{ A / B }")
    inner = _TAG.split(inner)[0].replace("\\", "")
    texts, num_open = [""], 0
    for character in inner:
        num_open += {"{": 1, "}": -1}.get(character, 0)
        if character == "/" and not num_open:
            texts.append("")
        else:
            texts[-1] += character
    alternatives = [_parse(text, location, depth) for text in texts if text.strip(" ")]
    if not alternatives:
        location.fail("no alternative between { and }", "{ A / B }")
    return alternatives


def _words(tokens: list[str], text: str) -> list[Word]:
    """Return the words of `text`, which consists of `tokens`."""
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
