"""Reader of segment time marks (stm): the reference of a test set.

A line is ``FILE CHANNEL SPEAKER START END [<LABEL,...>] [TEXT]``; ``;;`` begins a comment, and the comment
``;; LABEL "ID" "TITLE" "DESCRIPTION"`` names a label.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from asrtool.score.lines import Place, Side, read_lines, split, to_number

_LABEL_PREFIX = ";; LABEL "
_LABEL = re.compile(r'[^"]*"([^"]*)"[^"]*"([^"]*)"[^"]*"([^"]*)"')
_LABELS = re.compile(r"<[^<>]+>")


class StmSegment(NamedTuple):
    """A line of an stm, as it stands; times in seconds from the start of the file."""

    place: Place
    side: Side
    speaker: str
    start_s: float
    end_s: float
    labels: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Stm:
    """The segments in file order, and the titles of the declared labels by id."""

    segments: tuple[StmSegment, ...]
    titles: dict[str, str]


def read_stm(path: Path | str) -> Stm:
    """Read an stm; raises AsrtoolError naming file and line of what is malformed, and for one without segments."""
    segments: list[StmSegment] = []
    titles: dict[str, str] = {}
    place = Place(Path(path), 1)
    for place, line in read_lines(path):
        line = line.strip(" \t")
        if line.startswith(_LABEL_PREFIX):
            match = _LABEL.match(line)
            if not match:
                place.fail("malformed LABEL", ';; LABEL "ID" "TITLE" "DESCRIPTION"')
            titles.setdefault(match[1], match[2].strip())
        elif line and not line.startswith(";;"):
            segments.append(_parse(place, line))
    if not segments:
        place.fail("no segment in the whole file", "lines FILE CHANNEL SPEAKER START END <LABELS> TEXT")
    return Stm(tuple(segments), titles)


def _parse(place: Place, line: str) -> StmSegment:
    fields = split(line)
    if len(fields) < 5:
        place.fail(f"{len(fields)} fields", "FILE CHANNEL SPEAKER START END <LABELS> TEXT")
    if any(mark in field for field in fields[:5] for mark in "<>{}"):
        place.fail("one of < > { } in the first five fields", "FILE CHANNEL SPEAKER START END <LABELS> TEXT")
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
