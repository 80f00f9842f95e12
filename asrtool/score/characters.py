"""Count characters and character errors of aligned words.

Blanks are not counted, as by ``sclite -c``. The errors of a segment are the edit distance of its characters, with
equal costs. Words that are forgiven (a missing optional word, another spelling by a rule) cost no characters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from os.path import commonprefix
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from asrtool.score.result import Pair


class Characters(NamedTuple):
    """Reference characters and errors; they add up with ``+``."""

    chars: int = 0
    char_err: int = 0

    @property
    def cer(self) -> float | None:
        """Character error rate in percent; None without characters in the reference."""
        return 100 * self.char_err / self.chars if self.chars else None

    def __add__(self, other: Characters) -> Characters:  # type: ignore[override]
        return Characters(self.chars + other.chars, self.char_err + other.char_err)


def count_characters(pairs: Iterable[Pair], has_marks: bool = True) -> Characters:
    """Count the characters of a segment's aligned words.

    `has_marks`: parentheses around a word mark it as optional.
    """
    ref, hyp = "", ""
    for kind, said, heard in pairs:
        if kind == "C":
            if said and heard:
                ref, hyp = ref + said, hyp + said
            continue
        ref, hyp = ref + _bare(said, has_marks), hyp + _bare(heard, has_marks)
    return Characters(len(ref), edit_distance(ref, hyp))


def edit_distance(a: str, b: str) -> int:
    """The fewest characters to substitute, delete or insert that make `b` of `a`.

    A row of the table of distances is two integers, a bit a character: where it rises by one from one character of `a`
    to the next, and where it falls (H. Hyyrö, "A bit-vector algorithm for computing Levenshtein and Damerau edit
    distances", Nordic Journal of Computing 10, 2003).
    """
    start = len(commonprefix((a, b)))  # noqa: RUF071, these are texts
    a, b = a[start:], b[start:]
    end = len(commonprefix((a[::-1], b[::-1])))  # noqa: RUF071
    a, b = a[: len(a) - end], b[: len(b) - end]
    if not a or not b:
        return len(a) + len(b)
    places: defaultdict[str, int] = defaultdict(int)
    for place, character in enumerate(a):
        places[character] |= 1 << place
    every, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
    rises, falls, distance = every, 0, len(a)
    for character in b:
        equal = places.get(character, 0)
        diagonal = ((((equal & rises) + rises) ^ rises) | equal | falls) & every
        down = falls | (every & ~(diagonal | rises))
        up = rises & diagonal
        distance += bool(down & last) - bool(up & last)
        down = (down << 1) | 1
        up <<= 1
        rises = (up | ~(diagonal | down)) & every
        falls = down & diagonal & every
    return distance


def _bare(word: str, has_marks: bool) -> str:
    return word[1:-1] if has_marks and len(word) > 1 and word[0] == "(" and word[-1] == ")" else word
