"""Reader of segment time marks (stm): the reference of a test set.

A line is ``FILE CHANNEL SPEAKER START END [<LABEL,...>] [TEXT]``; ``;;`` begins a comment, and the comment
``;; LABEL "ID" "TITLE" "DESCRIPTION"`` names a label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, NoReturn

from asrtool.score.formats.lines import Place, Side, check_end, lower, read_text, split, to_lines, to_number

_LABEL_PREFIX = ";; LABEL "
_LABEL = re.compile(r'[^"]*"([^"]*)"[^"]*"([^"]*)"[^"]*"([^"]*)"')
_LABELS = re.compile(r"<[^<>]+>")
_FIELDS = "FILE CHANNEL SPEAKER START END <LABELS> TEXT"


class StmSegment(NamedTuple):
    """A line of an stm, as it stands; times in seconds from the start of the file."""

    place: Place
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
            segments.append(_parse(Place(path, number), line))
    if not segments:
        Place(path, len(lines) or 1).fail("no segment in the whole file", f"lines {_FIELDS}")
    check_end(path, text, lambda: _is_moved(segments, lines))
    return segments


def _is_moved(segments: list[StmSegment], lines: list[str]) -> bool:
    """Return whether the last line is a comment, or not the last by side and time."""
    last = max(segments, key=lambda segment: (segment.side, segment.start_s, segment.place.line))
    return bool(lines[-1].strip(" \t")) and last.place.line != len(lines)


def read_titles(path: Path | str) -> dict[str, str]:
    """Read the titles of the declared labels, by id.

    Raises AsrtoolError for a malformed line.
    """
    titles: dict[str, str] = {}
    for number, line in enumerate(to_lines(read_text(path)), 1):
        line = line.strip(" \t")
        if line.startswith(_LABEL_PREFIX):
            match = _LABEL.match(line)
            if not match:
                Place(Path(path), number).fail("malformed LABEL", ';; LABEL "ID" "TITLE" "DESCRIPTION"')
            titles.setdefault(match[1], match[2].strip())
    return titles


def _parse(place: Place, line: str) -> StmSegment:
    fields = split(line)
    if len(fields) < 5:
        place.fail(f"{len(fields)} fields", _FIELDS)
    if any(mark in field for field in fields[:5] for mark in "<>{}"):
        place.fail("one of < > { } in the first five fields", _FIELDS)
    start_s, end_s = to_number(fields[3], place, "START"), to_number(fields[4], place, "END")
    if end_s < start_s:
        place.fail(f"END {fields[4]} before START {fields[3]}", "END at or after START")
    labels = fields[5] if len(fields) > 5 and fields[5].startswith("<") else ""
    if labels and not _LABELS.fullmatch(labels):
        place.fail(f"labels {labels!r}", "<LABEL,LABEL,...> between spaces")
    return StmSegment(
        place=place,
        side=Side(fields[0], line[len(fields[0]) : line.index(fields[1], len(fields[0]))], fields[1]),
        speaker=fields[2],
        start_s=start_s,
        end_s=end_s,
        labels=tuple(labels[1:-1].split(",")) if labels else (),
        text=" ".join(fields[6:] if labels else fields[5:]),
    )


class Labels:
    """Labels of the stm `ref`; each has one position in its segments, its category."""

    def __init__(self, ref: Path | str, declared: Iterable[str]) -> None:
        self._ref = ref
        self._declared = {lower(label): label for label in declared}
        self._places: dict[str, int] = {}
        self._known: dict[str, tuple[str, ...]] = {"": ()}

    def read(self, names: str) -> tuple[str, ...]:
        """Parse ``LABEL,LABEL``.

        Raises AsrtoolError for a label that is not declared or is at two positions.
        """
        if names not in self._known:
            found = [self._find(name, place, names) for place, name in enumerate(names.split(","), 1) if name]
            self._known[names] = tuple(found)
        return self._known[names]

    def _find(self, name: str, place: int, names: str) -> str:
        key = lower(name)
        if key not in self._declared:
            self._fail(names, f"label {name!r} is not declared", f';; LABEL "{name}" "TITLE" "DESCRIPTION" in the file')
        before = self._places.setdefault(key, place)
        if before != place:
            what = f"label {name!r} at place {place} of <{names}>, before at place {before}"
            self._fail(names, what, "each label at one place")
        return self._declared[key]

    def _fail(self, names: str, what: str, expected: str) -> NoReturn:
        segments = read_stm(self._ref)
        next(segment for segment in segments if ",".join(segment.labels) == names).place.fail(what, expected)
