"""Words with alternatives as a network: what the alignment runs over.

An arc carries a word; arc 0 is an empty one before the first word. Where paths join, the order of the arcs decides
between paths of equal cost, so it is that of the text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

NULL = "@"


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


@dataclass
class Network:
    """`before[i]` are the arcs that lead into arc i, `ends` those that end the network."""

    words: list[Word] = field(default_factory=lambda: [Word("")])
    before: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    ends: tuple[int, ...] = (0,)

    @property
    def has_null(self) -> bool:
        return any(word.null for word in self.words)


@functools.lru_cache(1 << 16)
def make_word(token: str) -> Word:
    """Decode the marks of a token: ``(word)`` optional, ``wor-`` or ``-ord`` fragment, ``@`` the empty alternative.

    A ``*`` at the end is dropped.
    """
    if len(token) > 1 and token.endswith("*"):
        token = token[:-1]
    optional = len(token) > 1 and token.startswith("(") and token.endswith(")")
    fragment = token.startswith("-") or token.endswith("-") or (optional and token[-2] == "-")
    return Word(token[1:-1] if optional else token, optional, fragment, token == NULL)


def same_word(ref: Word, hyp: Word) -> bool:
    """Equal, or one is a fragment of the other: ``th-`` matches ``the``, ``-an`` matches ``than``."""
    if ref.fragment or hyp.fragment:
        for one, other in ((ref.text, hyp.text), (hyp.text, ref.text)):
            if len(one) > 1 and one.startswith("-"):
                return other.endswith(one[1:])
            if len(one) > 1 and one.endswith("-"):
                return other.startswith(one[:-1])
    return ref.text == hyp.text


def make_network(parts: Iterable[Part]) -> Network:
    """The network of a text."""
    network = Network()
    network.ends = _add(network, parts, (0,))
    return network


def _add(network: Network, parts: Iterable[Part], before: tuple[int, ...]) -> tuple[int, ...]:
    for part in parts:
        if isinstance(part, Word):
            network.words.append(part)
            network.before.append(before)
            before = (len(network.words) - 1,)
        else:
            before = tuple(end for alternative in part for end in _add(network, alternative, before))
    return before
