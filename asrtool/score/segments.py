"""segments.jsonl: a line a segment, from which two scores of the same reference are compared.

``{"id", "speaker", "reference", "outcomes"}``: `reference` is the text as it was scored, `outcomes` the letters C, S, D
and I of the aligned words in their order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from asrtool.errors import AsrtoolError
from asrtool.score.lines import read_lines
from asrtool.score.result import Result

FILE = "segments.jsonl"


class ScoredSegment(NamedTuple):
    """A line of segments.jsonl."""

    id: str
    speaker: str
    reference: str
    outcomes: str

    @property
    def num_words(self) -> int:
        """Words of the reference."""
        return len(self.outcomes) - self.outcomes.count("I")

    @property
    def num_errors(self) -> int:
        return len(self.outcomes) - self.outcomes.count("C")


def format_segments(result: Result) -> str:
    """The content of segments.jsonl."""
    quote = json.JSONEncoder(ensure_ascii=False).encode
    lines = []
    for segment in result.segments:
        names = f'"id": {quote(segment.id)}, "speaker": {quote(segment.speaker)}'
        texts = f'"reference": {quote(segment.reference)}, "outcomes": "{segment.alignment.outcomes}"'
        lines.append(f"{{{names}, {texts}}}\n")
    return "".join(lines)


def read_segments(score: Path | str) -> list[ScoredSegment]:
    """The segments of a score: a folder that `asrtool score` wrote, or a file in it.

    Raises AsrtoolError where there is none, and naming the line of what is malformed.
    """
    folder = Path(score) if Path(score).is_dir() else Path(score).parent
    path = folder / FILE
    if not path.is_file():
        raise AsrtoolError(f"{path} is missing", "name a folder that asrtool score wrote, or score again")
    segments = []
    for place, line in read_lines(path):
        try:
            segment = ScoredSegment(**json.loads(line))
            "".join(segment).encode()
        except (ValueError, TypeError, RecursionError):
            place.fail("malformed segment", f"a JSON object with {', '.join(ScoredSegment._fields)}")
        if set(segment.outcomes) - set("CSDI"):
            place.fail(f"outcomes {segment.outcomes!r}", "the letters C, S, D and I")
        segments.append(segment)
    return segments
