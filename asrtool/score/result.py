"""Counts of words and characters, and the result of scoring a whole test set.

Characters are counted without blanks, as by ``sclite -c``. The character errors of a segment are the edit distance of
its texts, with equal costs. Words that are forgiven (a missing optional word, another spelling by a rule) cost none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from operator import eq
from typing import NamedTuple

# Rule by which words are assigned to segments.
BY_TIME, BY_UTTERANCE, BY_LINE = "by time, by the rules of NIST", "utterance by utterance", "line by line"


class Counts(NamedTuple):
    """Words by outcome in `segments`."""

    segments: int = 0
    corr: int = 0
    sub: int = 0
    del_: int = 0
    ins: int = 0

    @property
    def num_words(self) -> int:
        """Words of the reference: N = corr + sub + del."""
        return self.corr + self.sub + self.del_

    @property
    def err(self) -> int:
        """Errors: sub + del + ins."""
        return self.sub + self.del_ + self.ins

    @property
    def wer(self) -> float | None:
        """Word error rate in percent, 100 err / N; None without reference words."""
        return 100 * self.err / self.num_words if self.num_words else None

    def to_dict(self) -> dict[str, int]:
        """Return the form of score.json."""
        return {
            "segments": self.segments,
            "words": self.num_words,
            "corr": self.corr,
            "sub": self.sub,
            "del": self.del_,
            "ins": self.ins,
            "err": self.err,
        }


class Characters(NamedTuple):
    """Reference characters and errors."""

    chars: int = 0
    char_err: int = 0

    @property
    def cer(self) -> float | None:
        """Character error rate in percent; None without characters in the reference."""
        return 100 * self.char_err / self.chars if self.chars else None


class Pair(NamedTuple):
    """Step of an alignment: `kind` is C, S, D or I; a missing word is empty."""

    kind: str
    ref: str
    hyp: str


class Alignment:
    """Aligned words of a segment in order: outcome, reference and hypothesis of each.

    `outcomes` joins letters C, S, D and I; a missing word is empty. Of a score by an earlier asrtool only the outcomes
    are known.
    """

    __slots__ = ("_characters", "counts", "hyps", "outcomes", "refs")

    def __init__(self, outcomes: Iterable[str] = (), refs: Sequence[str] = (), hyps: Sequence[str] = ()) -> None:
        self.outcomes, self.refs, self.hyps = "".join(outcomes), refs, hyps
        count = self.outcomes.count
        self.counts = Counts(1, count("C"), count("S"), count("D"), count("I"))
        self._characters: Characters | None = None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Steps of the alignment."""
        return tuple(map(Pair, self.outcomes, self.refs, self.hyps))

    @property
    def errors(self) -> list[Pair]:
        """Steps that are not correct."""
        steps = zip(self.outcomes, self.refs, self.hyps, strict=False)
        return [Pair(*step) for step in steps if step[0] != "C"]

    def characters(self, has_marks: bool = True) -> Characters:
        """Count the characters of the words.

        `has_marks`: parentheses around a word mark it as optional.
        """
        if self._characters is None:
            refs, hyps = self.refs, self.hyps
            if has_marks and refs:
                refs, hyps = zip(*map(_spell, self.outcomes, refs, hyps), strict=True)
            ref, hyp = "".join(refs), "".join(hyps)
            self._characters = Characters(len(ref), edit_distance(ref, hyp))
        return self._characters


class Segment(NamedTuple):
    """One scored segment; times in seconds within the file, None for plain text."""

    id: str
    speaker: str
    labels: tuple[str, ...]
    reference: str  # the text that was scored
    alignment: Alignment
    file: str = ""
    channel: str = ""
    start_s: float | None = None
    end_s: float | None = None


@dataclass(frozen=True, eq=False)
class Result:
    """Scored test set, or a part of it: segments in order, titles of labels by id."""

    segments: tuple[Segment, ...]
    titles: Mapping[str, str] = field(default_factory=dict)
    scored: str = BY_UTTERANCE  # or BY_TIME, BY_LINE

    @cached_property
    def overall(self) -> Counts:
        """Counts of all segments."""
        return total(segment.alignment.counts for segment in self.segments)

    @cached_property
    def characters(self) -> Characters:
        """Characters of all segments."""
        each = (segment.alignment.characters(segment.start_s is not None) for segment in self.segments)
        return Characters(*map(sum, zip(*each, strict=True)))

    def parts(self, names: Callable[[Segment], Iterable[str]]) -> dict[str, Result]:
        """Return parts by each name of a segment, in order of first appearance."""
        found: dict[str, list[Segment]] = {}
        for segment in self.segments:
            for name in names(segment):
                found.setdefault(name, []).append(segment)
        return {name: Result(tuple(segments)) for name, segments in found.items()}

    @cached_property
    def speakers(self) -> dict[str, Result]:
        """Parts by speaker."""
        return self.parts(lambda segment: (segment.speaker,))

    @cached_property
    def labels(self) -> dict[str, Result]:
        """Parts by label, in the order of titles if there are any."""
        found = self.parts(lambda segment: segment.labels)
        return {label: found.get(label, Result(())) for label in self.titles or found}

    def to_dict(self) -> dict[str, object]:
        """Return the form of score.json."""
        return {
            "scored": self.scored,
            "overall": self._all_counts(),
            "labels": {name: part._all_counts() for name, part in self.labels.items()},
            "speakers": {name: part._all_counts() for name, part in self.speakers.items()},
        }

    def _all_counts(self) -> dict[str, int]:
        return {**self.overall.to_dict(), **self.characters._asdict()}


def total(counts: Iterable[Counts]) -> Counts:
    """Return the sum of `counts`."""
    return Counts(*map(sum, zip(*counts, strict=True)))


def _spell(kind: str, ref: str, hyp: str) -> tuple[str, str]:
    """Return the words of a pair as their characters are counted."""
    if kind == "C":
        return (ref, ref) if ref and hyp else ("", "")
    ref, hyp = (word[1:-1] if len(word) > 1 and word[0] + word[-1] == "()" else word for word in (ref, hyp))
    return ref, hyp


def num_equal(a: Iterable[object], b: Iterable[object]) -> int:
    """Return the number of equal elements before the first different one."""
    return sum(takewhile(bool, map(eq, a, b)))


def edit_distance(a: str, b: str) -> int:
    """Return the Levenshtein distance of two texts."""
    start = num_equal(a, b)
    a, b = a[start:], b[start:]
    end = num_equal(reversed(a), reversed(b))
    a, b = sorted((a[: len(a) - end], b[: len(b) - end]), key=len)
    row = -1
    for row in gain_rows(a, b, 2):  # noqa: B007, the last one counts
        pass
    return len(a) - len(b) + (row & ((1 << 2 * len(b)) - 1)).bit_count()


def gain_rows(a: Sequence[str], b: Sequence[str], gain: int) -> Iterator[int]:
    """Yield the greatest gains of aligning `a` with `b`, a row after each of `a`.

    An equal pair gains `gain`, which is 2 or more, another pair 1, a gap nothing. A row has `gain` bits for each of
    `b`, from the lowest on; the gain of the first of `b` is the number of 0 among their bits. It is the length of the
    longest common subsequence if each element becomes a letter that all share and gain - 1 letters of its own
    (A. Tiskin, "Semi-local string comparison: algorithmic techniques and applications", 2008; H. Hyyrö, "Bit-parallel
    LCS-length computation revisited", 2004).
    """
    masks: dict[str, int] = {}
    bits = (1 << gain) - 2
    for each in b:
        masks[each] = masks.get(each, 0) | bits
        bits <<= gain
    row = (1 << gain * len(b)) - 1
    shared, own = row // ((1 << gain) - 1), range(gain - 1)
    for each in a:
        both = row & shared
        row = (row + both) | (row - both)
        if mask := masks.get(each):
            for _ in own:
                both = row & mask
                row = (row + both) | (row - both)
        yield row
