"""Ctm format: ``recording channel start duration word confidence`` a line, in s."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from asrtool.decode.words import Word
from asrtool.score.utterances import escape

MIN_CS = 1  # centiseconds; a word has a duration even if rounding leaves none


@dataclass(frozen=True)
class Segment:
    """Decoded part of one side of a recording; word times count from `start_s`."""

    recording: str
    channel: str  # A or B
    start_s: float
    duration_s: float
    words: tuple[Word, ...]


def ctm_name(recording: str) -> str:
    """Escape blanks, mark-up signs and comment signs in a name."""
    return re.sub(r"^;;|[\s<>{}]+", lambda match: escape(match[0]), recording)


def format_ctm(segments: Iterable[Segment]) -> str:
    """Format a ctm, sorted by recording, channel and start.

    Segments of one side may overlap a little, because test segments are widened. The overlap is parted in its middle,
    and each segment keeps its words on its own part, so that words stay in spoken order.
    """
    lines = []
    ordered = sorted(segments, key=lambda s: (s.recording, s.channel, s.start_s, s.duration_s))
    for (recording, channel), side in groupby(ordered, key=lambda s: (s.recording, s.channel)):
        for begin_cs, end_cs, word in sorted(_place_side(list(side)), key=lambda item: item[0]):
            start, duration = begin_cs / 100, (end_cs - begin_cs) / 100
            lines.append(
                f"{ctm_name(recording)} {channel} {start:.2f} {duration:.2f} {word.text} {word.confidence:.3f}\n"
            )
    return "".join(lines)


def _place_side(side: Sequence[Segment]) -> list[tuple[int, int, Word]]:
    lows = [segment.start_s for segment in side]
    highs = [segment.start_s + segment.duration_s for segment in side]
    for i in range(len(side) - 1):
        if lows[i + 1] < highs[i] < highs[i + 1]:  # no middle if one holds the other: both keep their times
            highs[i] = lows[i + 1] = (highs[i] + lows[i + 1]) / 2
    return [
        item
        for segment, low, high in zip(side, lows, highs, strict=True)
        for item in _place(segment, round(low * 100), round(high * 100))
    ]


def _place(segment: Segment, low_cs: int, high_cs: int) -> list[tuple[int, int, Word]]:
    """Return (begin, end, word) in centiseconds without overlap, if there is room."""
    times = []
    cursor = low_cs
    for word in segment.words:
        begin = max(cursor, round((segment.start_s + word.begin_s) * 100))
        cursor = max(begin + MIN_CS, round((segment.start_s + word.end_s) * 100))
        times.append((begin, cursor))
    cursor = high_cs
    for i in range(len(times) - 1, -1, -1):
        end = min(cursor, times[i][1])
        cursor = max(0, min(times[i][0], end - MIN_CS))
        times[i] = (cursor, end)
    return [(begin, end, word) for (begin, end), word in zip(times, segment.words, strict=True)]
