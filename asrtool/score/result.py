"""Counts of a scored text, and the result of scoring a whole test set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from asrtool.score.characters import Characters, count_characters

BY_TIME, BY_UTTERANCE = "by time, by the rules of NIST", "utterance by utterance"  # how words find their segment


class Counts(NamedTuple):
    """Words by outcome in `segments`; counts add up with ``+``."""

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

    def __add__(self, other: Counts) -> Counts:  # type: ignore[override]
        return Counts(
            self.segments + other.segments,
            self.corr + other.corr,
            self.sub + other.sub,
            self.del_ + other.del_,
            self.ins + other.ins,
        )

    def to_dict(self) -> dict[str, int]:
        """The form of score.json."""
        return {
            "segments": self.segments,
            "words": self.num_words,
            "corr": self.corr,
            "sub": self.sub,
            "del": self.del_,
            "ins": self.ins,
            "err": self.err,
        }

    @classmethod
    def from_dict(cls, counts: Mapping[str, int]) -> Counts:
        """Read counts from the form of score.json."""
        return cls(counts["segments"], counts["corr"], counts["sub"], counts["del"], counts["ins"])


class Pair(NamedTuple):
    """Step of an alignment: `kind` is C, S, D or I; a missing word is empty."""

    kind: str
    ref: str
    hyp: str


class Alignment:
    """Aligned words of a segment in order; `outcomes` joins the kinds of its pairs."""

    __slots__ = ("counts", "outcomes", "pairs")

    def __init__(self, pairs: tuple[Pair, ...]) -> None:
        self.pairs = pairs
        self.outcomes = "".join([kind for kind, _, _ in pairs])
        count = self.outcomes.count
        self.counts = Counts(1, count("C"), count("S"), count("D"), count("I"))


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


@dataclass(frozen=True)
class Result:
    """Scored test set: its segments in order, and titles of labels by id."""

    segments: tuple[Segment, ...]
    titles: dict[str, str]
    scored: str = BY_UTTERANCE  # or BY_TIME

    @cached_property
    def overall(self) -> Counts:
        return total(segment.alignment.counts for segment in self.segments)

    @cached_property
    def speakers(self) -> dict[str, Counts]:
        """Counts a speaker, in order of first appearance."""
        return _grouped((segment.speaker, segment) for segment in self.segments)

    @cached_property
    def labels(self) -> dict[str, Counts]:
        """Counts a label, in the order the reference declares them."""
        grouped = _grouped((label, segment) for segment in self.segments for label in segment.labels)
        return {label: grouped.get(label, Counts()) for label in self.titles}

    @cached_property
    def characters(self) -> Characters:
        """Characters of all segments."""
        return sum(self._of_segments, Characters())

    @cached_property
    def speaker_characters(self) -> dict[str, Characters]:
        """Characters a speaker, in order of first appearance."""
        named = ((segment.speaker, one) for segment, one in zip(self.segments, self._of_segments, strict=True))
        return _added(named)

    @cached_property
    def label_characters(self) -> dict[str, Characters]:
        """Characters a label, in the order the reference declares them."""
        each = zip(self.segments, self._of_segments, strict=True)
        added = _added(((label, one) for segment, one in each for label in segment.labels))
        return {label: added.get(label, Characters()) for label in self.titles}

    @cached_property
    def _of_segments(self) -> list[Characters]:
        return [count_characters(s.alignment.pairs, has_marks=s.start_s is not None) for s in self.segments]

    def to_dict(self) -> dict[str, object]:
        """The form of score.json."""
        labels, speakers = self.label_characters, self.speaker_characters
        return {
            "scored": self.scored,
            "overall": {**self.overall.to_dict(), **self.characters._asdict()},
            "labels": {name: {**of.to_dict(), **labels[name]._asdict()} for name, of in self.labels.items()},
            "speakers": {name: {**of.to_dict(), **speakers[name]._asdict()} for name, of in self.speakers.items()},
        }


def total(counts: Iterable[Counts]) -> Counts:
    """The sum of `counts`."""
    return Counts(*map(sum, zip(*counts, strict=True)))


def _grouped(segments: Iterable[tuple[str, Segment]]) -> dict[str, Counts]:
    groups: dict[str, list[Counts]] = {}
    for name, segment in segments:
        groups.setdefault(name, []).append(segment.alignment.counts)
    return {name: total(counts) for name, counts in groups.items()}


def _added(named: Iterable[tuple[str, Characters]]) -> dict[str, Characters]:
    sums: dict[str, Characters] = {}
    for name, one in named:
        sums[name] = sums.get(name, Characters()) + one
    return sums
