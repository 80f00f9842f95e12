"""segments.jsonl: one scored segment a line, to compare scores and show errors.

``{"id", "speaker", "reference", "outcomes", "labels", "file", "channel", "start_s", "end_s", "ref", "hyp"}``:
`reference` is the scored text, `outcomes` the letters C, S, D and I of the aligned words, `ref` and `hyp` these
words, with ``""`` for a missing one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from asrtool.errors import AsrtoolError
from asrtool.score.lines import read_lines
from asrtool.score.result import Counts, Pair, Result, Segment

FILE = "segments.jsonl"


class ScoredSegment(NamedTuple):
    """Line of segments.jsonl; older files end after `outcomes`."""

    id: str
    speaker: str
    reference: str
    outcomes: str
    labels: tuple[str, ...] = ()
    file: str = ""
    channel: str = ""
    start_s: float | None = None  # None for plain text
    end_s: float | None = None
    ref: tuple[str, ...] | None = None
    hyp: tuple[str, ...] | None = None

    @property
    def num_words(self) -> int:
        """Words of the reference."""
        return len(self.outcomes) - self.outcomes.count("I")

    @property
    def num_errors(self) -> int:
        return len(self.outcomes) - self.outcomes.count("C")

    @property
    def counts(self) -> Counts:
        return Counts(1, *(self.outcomes.count(kind) for kind in "CSDI"))

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The aligned words; only where `ref` and `hyp` are known."""
        assert self.ref is not None
        assert self.hyp is not None
        return tuple(map(Pair, self.outcomes, self.ref, self.hyp))


COMPARED = ScoredSegment._fields[:4]


def format_segments(result: Result) -> str:
    """The content of segments.jsonl."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    lines = "".join([encode(_to_dict(segment)) + "\n" for segment in result.segments])
    return lines.replace("\x7f", "\\u007f")  # the one control character that JSON does not escape


def _to_dict(segment: Segment) -> dict[str, Any]:
    aligned = segment.alignment
    known = segment.id, segment.speaker, segment.reference, aligned.outcomes, segment.labels
    where = segment.file, segment.channel, segment.start_s, segment.end_s
    words = [pair.ref for pair in aligned.pairs], [pair.hyp for pair in aligned.pairs]
    return dict(zip(ScoredSegment._fields, (*known, *where, *words), strict=True))


def read_segments(score: Path | str) -> list[ScoredSegment]:
    """Read the segments of a score: a folder of `asrtool score`, or a file in it.

    Raises AsrtoolError if none exists, and naming the line of a malformed one.
    """
    folder = Path(score) if Path(score).is_dir() else Path(score).parent
    path = folder / FILE
    if not path.is_file():
        raise AsrtoolError(f"{path} is missing", "name a folder that asrtool score wrote, or score again")
    segments = []
    for location, line in read_lines(path):
        try:
            segment = _parse(json.loads(line))
        except (ValueError, TypeError, RecursionError):
            location.fail("malformed segment", f"a JSON object with {', '.join(COMPARED)}")
        if set(segment.outcomes) - set("CSDI"):
            location.fail(f"outcomes {segment.outcomes!r}", "the letters C, S, D and I")
        segments.append(segment)
    return segments


def _parse(entry: Any) -> ScoredSegment:
    """Raises ValueError or TypeError for what is no segment."""
    segment = ScoredSegment(**entry)
    labels, ref, hyp = (None if words is None else tuple(words) for words in (segment.labels, segment.ref, segment.hyp))
    texts = (*segment[:4], segment.file, segment.channel, *(labels or ()), *(ref or ()), *(hyp or ()))
    "".join(texts).encode()  # half of a surrogate pair could not be written
    for words in (ref, hyp):
        if words is not None and len(words) != len(segment.outcomes):
            raise ValueError(f"{len(words)} words, {len(segment.outcomes)} outcomes")
    for time_s in (segment.start_s, segment.end_s):
        if time_s is not None and not isinstance(time_s, int | float):
            raise TypeError(f"{time_s!r} is no time")
    return segment._replace(labels=labels or (), ref=ref, hyp=hyp)
