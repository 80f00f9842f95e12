"""segments.jsonl: one scored segment a line, to compare scores and show errors.

``{"id", "speaker", "reference", "outcomes", "labels", "file", "channel", "start_s", "end_s", "ref", "hyp"}``:
`reference` is the scored text, `outcomes` the letters C, S, D and I of the aligned words, `ref` and `hyp` these
words, with ``""`` for a missing one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.score.lines import read_lines
from asrtool.score.result import Alignment, Result, Segment

FILE = "segments.jsonl"


def format_segments(result: Result) -> str:
    """Format segments.jsonl."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    lines = "".join([encode(_to_dict(segment)) + "\n" for segment in result.segments])
    return lines.replace("\x7f", "\\u007f")  # the one control character that JSON does not escape


def _to_dict(segment: Segment) -> dict[str, Any]:
    return {
        "id": segment.id,
        "speaker": segment.speaker,
        "reference": segment.reference,
        "outcomes": segment.alignment.outcomes,
        "labels": segment.labels,
        "file": segment.file,
        "channel": segment.channel,
        "start_s": segment.start_s,
        "end_s": segment.end_s,
        "ref": segment.alignment.refs,
        "hyp": segment.alignment.hyps,
    }


def read_segments(score: Path | str) -> list[Segment]:
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
            segment = _parse(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            location.fail("malformed segment", "a JSON object with id, speaker, reference, outcomes")
        if set(segment.alignment.outcomes) - set("CSDI"):
            location.fail(f"outcomes {segment.alignment.outcomes!r}", "the letters C, S, D and I")
        segments.append(segment)
    return segments


def _parse(
    id: str,
    speaker: str,
    reference: str,
    outcomes: str,
    labels: Sequence[str] | None = (),
    file: str = "",
    channel: str = "",
    start_s: float | None = None,
    end_s: float | None = None,
    ref: Sequence[str] | None = None,
    hyp: Sequence[str] | None = None,
) -> Segment:
    """Parse a segment; ValueError or TypeError if it is malformed.

    Older files end after `outcomes`.
    """
    texts = (id, speaker, reference, outcomes, file, channel, *(labels or ()), *(ref or ()), *(hyp or ()))
    "".join(texts).encode()  # half of a surrogate pair could not be written
    for words in (ref, hyp):
        if words is not None and len(words) != len(outcomes):
            raise ValueError(f"{len(words)} words, {len(outcomes)} outcomes")
    for time_s in (start_s, end_s):
        if time_s is not None and not isinstance(time_s, int | float):
            raise TypeError(f"{time_s!r} is no time")
    aligned = Alignment(outcomes, *((ref, hyp) if ref and hyp else ()))
    return Segment(id, speaker, tuple(labels or ()), reference, aligned, file, channel, start_s, end_s)
