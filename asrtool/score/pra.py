"""Alignments as text, word under word: correct words in lower case, errors in upper case, ``*`` where none stands."""

from __future__ import annotations

import functools

from asrtool.score.lines import upper
from asrtool.score.result import Alignment, Pair, Result, Segment


def format_alignments(result: Result) -> str:
    """One block a segment, in the order of scoring."""
    return "\n".join(_format_segment(segment) for segment in result.segments)


def _format_segment(segment: Segment) -> str:
    counts = segment.alignment.counts
    lines = [f"id: ({segment.id})"]
    if segment.labels:
        lines.append(f"Labels: <{','.join(segment.labels)}>")
    if segment.start_s is not None:
        lines.append(f"Time: {segment.file} {segment.channel} {segment.start_s:.2f} {segment.end_s:.2f}")
    lines.append(f"Scores: (#C #S #D #I) {counts.corr} {counts.sub} {counts.del_} {counts.ins}")
    return "\n".join([*lines, *_format_words(segment.alignment)]) + "\n"


def _format_words(alignment: Alignment) -> list[str]:
    columns = [_column(pair) for pair in alignment.pairs]
    rows = (" ".join(cells).rstrip() for cells in zip(*columns, strict=True)) if columns else ("", "", "")
    return [f"{head:<5} {row}".rstrip() for head, row in zip(("REF:", "HYP:", "Eval:"), rows, strict=True)]


@functools.lru_cache(1 << 16)
def _column(pair: Pair) -> tuple[str, str, str]:
    correct = pair.kind == "C"
    width = max(len(pair.ref), len(pair.hyp), 1)
    ref, hyp = ((word if correct else upper(word)) or "*" * width for word in (pair.ref, pair.hyp))
    return ref.ljust(width), hyp.ljust(width), ("" if correct else pair.kind).ljust(width)
