"""References of the mini corpus's test sets."""

from __future__ import annotations

from collections.abc import Iterator

from asrtool.local.mini.call import Recorded
from asrtool.local.mini.conversation import Segment
from asrtool.local.mini.glm import CONTRACTIONS
from asrtool.local.mini.marks import Token

IGNORED = "IGNORE_TIME_SEGMENT_IN_SCORING"


def scored(item: Recorded, side: int) -> list[Segment]:
    """Return the scored segments: those with words, after the greeting."""
    begin_s = item.conversation.greeting_end_s
    return [s for s in item.conversation.sides[side] if s.has_words and s.start_s >= begin_s]


def stm_lines(item: Recorded, side: int, head: str, label: str) -> Iterator[str]:
    """Yield reference lines of one side; time before and after is not scored.

    `head` is file, channel and speaker.
    """
    segments, duration_s = scored(item, side), item.conversation.duration_s
    begin_s, end_s = (segments[0].start_s, segments[-1].end_s) if segments else (duration_s, duration_s)
    yield f"{head} 0.00 {begin_s:.2f} {label} {IGNORED}\n"
    for segment in segments:
        yield f"{head} {segment.start_s:.2f} {segment.end_s:.2f} {label} {format_stm(segment)}\n"
    if segments:
        yield f"{head} {end_s:.2f} {duration_s:.2f} {label} {IGNORED}\n"


def format_stm(segment: Segment) -> str:
    """Format a segment as NIST scores it: upper case, no contractions or sounds."""
    return " ".join(_stm_token(timed.token) for timed in segment.tokens if not timed.token.is_sound)


def _stm_token(token: Token) -> str:
    if token.kind in ("partial", "tail"):
        return f"({token.heard}-)".upper() if token.kind == "partial" else f"(-{token.heard})".upper()
    if token.word in ("uh", "um"):
        return "(%HESITATION)"
    written = {"t._v.": "T. V."}.get(token.word) or CONTRACTIONS.get(token.word) or token.word.upper()
    if token.kind == "mispronounced":
        return f"{{{written} / {token.heard.upper()}}}"
    if token.kind == "uncertain":
        return " ".join(f"({word})" for word in written.split())
    return written
