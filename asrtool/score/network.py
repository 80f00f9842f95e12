"""Network of words with alternatives, which the alignment runs over.

An arc has a word; arc 0 is an empty one before the first word. The order of the arcs decides between paths of equal
cost, so it is the order of the text.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

NULL = "@"
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
        """The arcs that lead into `arc`, which is not 0."""
        return self.joins.get(arc) or (arc - 1,)

    @property
    def len_start(self) -> int:
        """Number of words before the first alternatives."""
        return min([min(arcs) for arcs in self.joins.values()], default=len(self.words) - 1)

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
    """The network of words without alternatives."""
    return Network([_START, *words], {}, (len(words),))


def make_network(parts: Sequence[Part]) -> Network:
    """The network of a text."""
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
