"""Readers of NIST's stm (reference) and ctm (hypothesis) of a test set.

A line of an stm is ``FILE CHANNEL SPEAKER START END [<LABEL,...>] [TEXT]``; the comment
``;; LABEL "ID" "TITLE" "DESCRIPTION"`` names a label. A line of a ctm is
``FILE CHANNEL START DURATION WORD [CONFIDENCE]``; alternatives are between the words ``<ALT_BEGIN>``, ``<ALT>`` and
``<ALT_END>``, whose times may be ``*``. In both, ``;;`` begins a comment.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from asrtool.score.lines import Location, Side, check_end, lower, read_text, split, to_lines, to_number, upper

ALT_BEGIN, ALT, ALT_END = "<ALT_BEGIN>", "<ALT>", "<ALT_END>"

_LABEL_PREFIX = ";; LABEL "
_LABEL = re.compile(r'[^"]*"([^"]*)"[^"]*"([^"]*)"[^"]*"([^"]*)"')
_LABELS = re.compile(r"<[^<>]+>")
_STM_FIELDS = "FILE CHANNEL SPEAKER START END <LABELS> TEXT"

_NUMBER = r"\d{1,9}(?:\.\d*)?|\.\d+"
_NAME, _GAP = r"([^ \t<>{}]+)", r"[ \t]+"
_CTM_LINE = re.compile(
    rf"(?!;;){_NAME}({_GAP}){_NAME}{_GAP}(-?(?:{_NUMBER})){_GAP}({_NUMBER}){_GAP}([^ \t]+)(?:{_GAP}([0-9.-]+))?",
    re.ASCII,
)
_CTM_FIELDS = "FILE CHANNEL START DURATION WORD [CONFIDENCE]"
_MARK_TIMES = re.compile(rf"({_NAME}{_GAP}{_NAME}){_GAP}\*{_GAP}\*{_GAP}(?=<ALT)", re.IGNORECASE)
_MAY_FOLLOW = {"": (ALT_BEGIN,), ALT_BEGIN: (ALT, ALT_END), ALT: (ALT, ALT_END), ALT_END: (ALT_BEGIN,)}


class StmSegment(NamedTuple):
    """A line of an stm, as it stands; times in seconds from the start of the file."""

    location: Location
    side: Side
    speaker: str
    start_s: float
    end_s: float
    labels: tuple[str, ...]
    text: str


def read_stm(path: Path | str) -> list[StmSegment]:
    """Read the segments in file order.

    Raises AsrtoolError for a malformed line, and for a file without segments.
    """
    path, text = Path(path), read_text(path)
    lines = to_lines(text)
    segments: list[StmSegment] = []
    for number, line in enumerate(lines, 1):
        line = line.strip(" \t")
        if line and not line.startswith(";;"):
            segments.append(_parse_segment(Location(path, number), line))
    if not segments:
        Location(path, len(lines) or 1).fail("no segment in the whole file", f"lines {_STM_FIELDS}")

    def sorting_moves_the_last_line() -> bool:
        last = max(segments, key=lambda segment: (segment.side, segment.start_s, segment.location.line))
        return bool(lines[-1].strip(" \t")) and last.location.line != len(lines)

    check_end(path, text, sorting_moves_the_last_line)
    return segments


def _parse_segment(location: Location, line: str) -> StmSegment:
    fields = split(line)
    if len(fields) < 5:
        location.fail(f"{len(fields)} fields", _STM_FIELDS)
    if any(mark in field for field in fields[:5] for mark in "<>{}"):
        location.fail("one of < > { } in the first five fields", _STM_FIELDS)
    start_s, end_s = to_number(fields[3], location, "START"), to_number(fields[4], location, "END")
    if end_s < start_s:
        location.fail(f"END {fields[4]} before START {fields[3]}", "END at or after START")
    labels = fields[5] if len(fields) > 5 and fields[5].startswith("<") else ""
    if labels and not _LABELS.fullmatch(labels):
        location.fail(f"labels {labels!r}", "<LABEL,LABEL,...> between spaces")
    return StmSegment(
        location=location,
        side=Side(fields[0], line[len(fields[0]) : line.index(fields[1], len(fields[0]))], fields[1]),
        speaker=fields[2],
        start_s=start_s,
        end_s=end_s,
        labels=tuple(labels[1:-1].split(",")) if labels else (),
        text=" ".join(fields[6:] if labels else fields[5:]),
    )


def read_titles(path: Path | str) -> dict[str, str]:
    """Read the titles of the labels that an stm declares, by id.

    Raises AsrtoolError for a malformed line.
    """
    titles: dict[str, str] = {}
    for number, line in enumerate(to_lines(read_text(path)), 1):
        line = line.strip(" \t")
        if line.startswith(_LABEL_PREFIX):
            match = _LABEL.match(line)
            if not match:
                Location(Path(path), number).fail("malformed LABEL", ';; LABEL "ID" "TITLE" "DESCRIPTION"')
            titles.setdefault(match[1], match[2].strip())
    return titles


class Labels:
    """Declared labels; each has one position in the labels of all segments."""

    def __init__(self, declared: Iterable[str]) -> None:
        self._declared = {lower(label): label for label in declared}
        self._positions: dict[str, int] = {}
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def read(self, segment: StmSegment) -> tuple[str, ...]:
        """Return the labels of `segment` as they are declared.

        Raises AsrtoolError for a label that is not declared or is at two positions.
        """
        names = segment.labels
        if names not in self._known:
            found = [self._find(name, position, segment) for position, name in enumerate(names, 1) if name]
            self._known[names] = tuple(found)
        return self._known[names]

    def _find(self, name: str, position: int, segment: StmSegment) -> str:
        key = lower(name)
        if key not in self._declared:
            declaration = f';; LABEL "{name}" "TITLE" "DESCRIPTION" in the file'
            segment.location.fail(f"label {name!r} is not declared", declaration)
        before = self._positions.setdefault(key, position)
        if before != position:
            names = ",".join(segment.labels)
            what = f"label {name!r} at place {position} of <{names}>, before at place {before}"
            segment.location.fail(what, "each label at one place")
        return self._declared[key]


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
    """Read a ctm; AsrtoolError naming file and line if it is malformed."""
    path, text, fullmatch = Path(path), read_text(path), _CTM_LINE.fullmatch
    lines, has_alternatives = to_lines(text), False
    sides: defaultdict[tuple[str, str, str], list[CtmWord]] = defaultdict(list)  # by file, gap and channel
    for number, line in enumerate(lines, 1):
        match = fullmatch(line)
        if not match:
            line = line.strip(" \t")
            if not line or line.startswith(";;"):
                continue
            match = fullmatch(_MARK_TIMES.sub(r"\1 0 0 ", line)) or _explain(Location(path, number), split(line))
        file, gap, channel, start, duration, word, confidence = match.groups("")
        if word[0] == "<" and _is_mark(word):
            has_alternatives = True
        sides[file, gap, channel].append(CtmWord(number, float(start), float(duration), word, confidence))
    check_end(path, text, lambda: _is_moved(sides, len(lines)))
    return Ctm(path, {Side(*key): words for key, words in sides.items()}, has_alternatives)


def _is_moved(sides: Mapping[tuple[str, str, str], Sequence[CtmWord]], line: int) -> bool:
    """Return whether the last line is a word but not the last by side and time."""
    words = [(key, word.start_s, word.line) for key, words in sides.items() for word in words]
    return any(number == line for *_, number in words) and max(words)[2] != line


def _explain(location: Location, fields: list[str]) -> NoReturn:
    if len(fields) not in (5, 6):
        location.fail(f"{len(fields)} fields", _CTM_FIELDS)
    if any(mark in field for field in fields[:2] for mark in "<>{}"):
        location.fail("one of < > { } in FILE or CHANNEL", _CTM_FIELDS)
    to_number(fields[2], location, "START")
    if to_number(fields[3], location, "DURATION") < 0:
        location.fail(f"DURATION is {fields[3]}", "0 or more")
    if len(fields) == 6 and not set(fields[5]) <= set("0123456789.-"):
        location.fail(f"CONFIDENCE is {fields[5]!r}", "a decimal number without exponent")
    location.fail(f"times {fields[2]} {fields[3]}", "seconds without sign and exponent, below 1e9")


def check_blocks(path: Path, words: Sequence[CtmWord]) -> None:
    """Raise AsrtoolError for a mark out of place among words in order of time."""
    last = ""
    for word in words:
        if _is_mark(word.word):
            mark = upper(word.word)
            if mark not in _MAY_FOLLOW[last]:
                what = f"{mark} out of place in the order of time"
                Location(path, word.line).fail(what, " or ".join(_MAY_FOLLOW[last]))
            last = mark
    if last in (ALT_BEGIN, ALT):
        Location(path, words[-1].line).fail("alternatives without end", ALT_END)


def _is_mark(word: str) -> bool:
    return upper(word).startswith("<ALT")
