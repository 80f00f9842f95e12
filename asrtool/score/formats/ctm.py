"""Reader of time marked conversations (ctm): the hypothesis of a test set.

A line is ``FILE CHANNEL START DURATION WORD [CONFIDENCE]``; ``;;`` begins a comment. Alternatives stand between the
words ``<ALT_BEGIN>``, ``<ALT>`` and ``<ALT_END>``, whose times may be ``*``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from asrtool.score.formats.lines import Place, Side, check_end, read_text, split, to_lines, to_number, upper

ALT_BEGIN, ALT, ALT_END = "<ALT_BEGIN>", "<ALT>", "<ALT_END>"
_NUMBER = r"\d{1,9}(?:\.\d*)?|\.\d+"
_NAME, _GAP = r"([^ \t<>{}]+)", r"[ \t]+"
_LINE = re.compile(
    rf"(?!;;){_NAME}({_GAP}){_NAME}{_GAP}(-?(?:{_NUMBER})){_GAP}({_NUMBER}){_GAP}([^ \t]+)(?:{_GAP}([0-9.-]+))?",
    re.ASCII,
)
_FIELDS = "FILE CHANNEL START DURATION WORD [CONFIDENCE]"
_MARK_TIMES = re.compile(rf"({_NAME}{_GAP}{_NAME}){_GAP}\*{_GAP}\*{_GAP}(?=<ALT)", re.IGNORECASE)
_MAY_FOLLOW = {"": (ALT_BEGIN,), ALT_BEGIN: (ALT, ALT_END), ALT: (ALT, ALT_END), ALT_END: (ALT_BEGIN,)}


class CtmWord(NamedTuple):
    """Line of a ctm; times in seconds from the start of the file, 0 for ``*``."""

    line: int
    start_s: float
    duration_s: float
    word: str
    confidence: str


@dataclass(frozen=True)
class Ctm:
    """The words by side, in file order."""

    path: Path
    sides: dict[Side, list[CtmWord]]
    has_alternatives: bool


def read_ctm(path: Path | str) -> Ctm:
    """Read a ctm; raises AsrtoolError naming file and line of what is malformed."""
    path, text, fullmatch = Path(path), read_text(path), _LINE.fullmatch
    lines, has_alternatives = to_lines(text), False
    sides: defaultdict[tuple[str, str, str], list[CtmWord]] = defaultdict(list)  # by file, gap and channel
    for number, line in enumerate(lines, 1):
        match = fullmatch(line)
        if not match:
            line = line.strip(" \t")
            if not line or line.startswith(";;"):
                continue
            match = fullmatch(_MARK_TIMES.sub(r"\1 0 0 ", line)) or _explain(Place(path, number), split(line))
        file, gap, channel, start, duration, word, confidence = match.groups("")
        if word[0] == "<" and _is_mark(word):
            has_alternatives = True
        sides[file, gap, channel].append(CtmWord(number, float(start), float(duration), word, confidence))
    check_end(path, text, lambda: _is_moved(sides, len(lines)))
    return Ctm(path, {Side(*key): words for key, words in sides.items()}, has_alternatives)


def check_blocks(path: Path, words: Sequence[CtmWord]) -> None:
    """Raise AsrtoolError for a mark out of place among words in order of time."""
    mark = ""
    for word in words:
        if _is_mark(word.word):
            mark = _next_mark(Place(path, word.line), mark, upper(word.word))
    if mark in (ALT_BEGIN, ALT):
        Place(path, words[-1].line).fail("alternatives without end", ALT_END)


def _is_moved(sides: Mapping[tuple[str, str, str], Sequence[CtmWord]], line: int) -> bool:
    """Return whether the last line is a word but not the last by side and time."""
    words = [(key, word.start_s, word.line) for key, words in sides.items() for word in words]
    return any(number == line for *_, number in words) and max(words)[2] != line


def _explain(place: Place, fields: list[str]) -> NoReturn:
    if len(fields) not in (5, 6):
        place.fail(f"{len(fields)} fields", _FIELDS)
    if any(mark in field for field in fields[:2] for mark in "<>{}"):
        place.fail("one of < > { } in FILE or CHANNEL", _FIELDS)
    to_number(fields[2], place, "START")
    if to_number(fields[3], place, "DURATION") < 0:
        place.fail(f"DURATION is {fields[3]}", "0 or more")
    if len(fields) == 6 and not set(fields[5]) <= set("0123456789.-"):
        place.fail(f"CONFIDENCE is {fields[5]!r}", "a decimal number without exponent")
    place.fail(f"times {fields[2]} {fields[3]}", "seconds without sign and exponent, below 1e9")


def _is_mark(word: str) -> bool:
    return upper(word).startswith("<ALT")


def _next_mark(place: Place, last: str, mark: str) -> str:
    if mark not in _MAY_FOLLOW[last]:
        place.fail(f"{mark} out of place in the order of time", " or ".join(_MAY_FOLLOW[last]))
    return mark
