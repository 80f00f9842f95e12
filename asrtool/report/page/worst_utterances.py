"""The worst utterances of a set, each with what every system made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asrtool.data.audio.excerpts import Clips
from asrtool.report.page.clip import Clip, make_clip
from asrtool.report.systems import KINDS, System, shown_labels
from asrtool.score.formats.segments import ScoredSegment
from asrtool.score.result import Pair

MAX_CARDS = 100  # of a set


@dataclass(frozen=True)
class Card:
    """Utterance with its scored segment by system (or None), and its audio."""

    place: int
    segments: Sequence[ScoredSegment | None]
    clip: Clip | None = None

    @property
    def first(self) -> ScoredSegment:
        """Reference part, which all systems share."""
        return next(segment for segment in self.segments if segment)

    @property
    def results(self) -> list[tuple[list[int], ScoredSegment]]:
        """Return distinct hypotheses, each with the numbers of its systems."""
        found: dict[ScoredSegment, list[int]] = {}
        for number, segment in enumerate(self.segments):
            if segment:
                found.setdefault(segment, []).append(number)
        return [(numbers, segment) for segment, numbers in found.items()]

    @property
    def errors(self) -> list[int]:
        """Return the errors of each system; 0 without a segment."""
        return [segment.num_errors if segment else 0 for segment in self.segments]

    @property
    def duration_s(self) -> float | None:
        """None for plain text."""
        first = self.first
        return None if first.start_s is None or first.end_s is None else first.end_s - first.start_s

    @property
    def where(self) -> str:
        """Recording, channel, times and labels."""
        first = self.first
        facts = [f"{first.file} {first.channel}"] if first.file else []
        facts += [f"{first.start_s:.2f} to {first.end_s:.2f} s"] if first.start_s is not None else []
        return ", ".join([*facts, *shown_labels(first)])


def worst_cards(systems: Sequence[System]) -> tuple[list[Card], int]:
    """Return at most MAX_CARDS with most errors, and the number of utterances."""
    by_key: dict[tuple[str, str], list[ScoredSegment | None]] = {}
    for number, system in enumerate(systems):
        for segment in system.score.segments:
            empty: list[ScoredSegment | None] = [None] * len(systems)
            by_key.setdefault((segment.id, segment.reference), empty)[number] = segment
    cards = [Card(place, segments) for place, segments in enumerate(by_key.values())]
    cards.sort(key=lambda card: (-sum(card.errors), card.place))
    return cards[:MAX_CARDS], len(cards)


def read_clip(card: Card, clips: Clips, palette: bytes) -> Clip | None:
    """The audio of a card; None where it is not there."""
    first = card.first
    if first.start_s is None or first.end_s is None:
        return None
    found = clips.read(first.file, first.channel, first.start_s, first.end_s)
    return make_clip(*found, palette) if found and len(found[0]) else None


def describe_pairs(pairs: Sequence[Pair]) -> str:
    """Aligned words for who does not see them."""
    errors = [_describe_error(pair) for pair in pairs if pair.kind != "C"]
    ref, hyp = (" ".join(filter(None, words)) for words in ([pair.ref for pair in pairs], [pair.hyp for pair in pairs]))
    return f"Reference: {ref or 'nothing'}. Recognised: {hyp or 'nothing'}. Errors: {', '.join(errors) or 'none'}."


def _describe_error(pair: Pair) -> str:
    return f"{pair.hyp} for {pair.ref}" if pair.kind == "S" else f"{pair.ref or pair.hyp} {KINDS[pair.kind]}"
