"""Reader of time marked conversations (ctm): the hypothesis of a test set.

A line is ``FILE CHANNEL START DURATION WORD [CONFIDENCE]``; ``;;`` begins a comment. Alternatives stand between the
words ``<ALT_BEGIN>``, ``<ALT>`` and ``<ALT_END>``, whose times may be ``*``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from asrtool.score.lines import Place, read_lines, split, to_number, upper

ALT_BEGIN, ALT, ALT_END = "<ALT_BEGIN>", "<ALT>", "<ALT_END>"
_CONFIDENCE = re.compile(r"[0-9.-]+", re.ASCII)
_MAY_FOLLOW = {"": (ALT_BEGIN,), ALT_BEGIN: (ALT, ALT_END), ALT: (ALT, ALT_END), ALT_END: (ALT_BEGIN,)}


@dataclass(frozen=True)
class CtmWord:
    """A line of a ctm, as it stands; times in seconds from the start of the file, 0 where the line has ``*``."""

    place: Place
    file: str
    channel: str
    start_s: float
    duration_s: float
    word: str
    confidence: str
    gap: str  # white space after the file name, by which NIST's scorer sorts too


def read_ctm(path: Path | str) -> tuple[CtmWord, ...]:
    """Read a ctm; raises AsrtoolError naming file and line of what is malformed."""
    words, mark = [], ""
    for place, line in read_lines(path):
        line = line.strip(" \t")
        if not line or line.startswith(";;"):
            continue
        words.append(_parse(place, line))
        if _is_mark(words[-1].word):
            mark = _next_mark(place, mark, upper(words[-1].word))
    if mark in (ALT_BEGIN, ALT):
        words[-1].place.fail("alternatives without end", ALT_END)
    return tuple(words)


def _parse(place: Place, line: str) -> CtmWord:
    fields = split(line)
    if len(fields) not in (5, 6):
        place.fail(f"{len(fields)} fields", "FILE CHANNEL START DURATION WORD [CONFIDENCE]")
    file, channel, start, duration, word, confidence = [*fields, ""][:6]
    if confidence and not _CONFIDENCE.fullmatch(confidence):
        place.fail(f"CONFIDENCE is {confidence!r}", "a decimal number without exponent")
    if any(mark in field for field in fields[:4] for mark in "<>{}"):
        place.fail("one of < > { } in the first four fields", "FILE CHANNEL START DURATION WORD [CONFIDENCE]")
    if _is_mark(word):
        start, duration = start.replace("*", "0"), duration.replace("*", "0")
    start_s, duration_s = to_number(start, place, "START"), to_number(duration, place, "DURATION")
    if duration_s < 0:
        place.fail(f"DURATION is {duration}", "0 or more")
    gap = line[len(file) : line.index(channel, len(file))]
    return CtmWord(place, file, channel, start_s, duration_s, word, confidence, gap)


def _is_mark(word: str) -> bool:
    return upper(word).startswith("<ALT")


def _next_mark(place: Place, last: str, mark: str) -> str:
    if mark not in _MAY_FOLLOW[last]:
        place.fail(f"{mark} out of place", " or ".join(_MAY_FOLLOW[last]))
    return mark
