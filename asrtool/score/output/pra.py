"""Alignments as text: correct words in lower case, errors in upper case.

A missing word is ``*``.
"""

from __future__ import annotations

from asrtool.score.formats.lines import upper
from asrtool.score.result import Pair, Result, Segment

_HEADS = "REF: ", "HYP: ", "Eval:"


class _Columns(dict[Pair, tuple[str, str, str]]):
    """Reference, hypothesis and outcome of a pair, one below another."""

    def __missing__(self, pair: Pair) -> tuple[str, str, str]:
        kind, ref, hyp = pair
        width = max(len(ref), len(hyp), 1)
        if kind == "C":
            kind = ""
        else:
            ref, hyp = upper(ref), upper(hyp)
        nothing = "*" * width
        self[pair] = column = ((ref or nothing).ljust(width), (hyp or nothing).ljust(width), kind.ljust(width))
        return column


def format_alignments(result: Result) -> str:
    """One block a segment, in the order of scoring."""
    columns = _Columns()
    return "\n".join([_format_segment(segment, columns) for segment in result.segments])


def _format_segment(segment: Segment, columns: _Columns) -> str:
    counts = segment.alignment.counts
    lines = [f"id: ({segment.id})"]
    if segment.labels:
        lines.append(f"Labels: <{','.join(segment.labels)}>")
    if segment.start_s is not None:
        lines.append(f"Time: {segment.file} {segment.channel} {segment.start_s:.2f} {segment.end_s:.2f}")
    lines.append(f"Scores: (#C #S #D #I) {counts.corr} {counts.sub} {counts.del_} {counts.ins}")
    refs, hyps, marks = zip(_HEADS, *[columns[pair] for pair in segment.alignment.pairs], strict=True)
    lines += [" ".join(refs).rstrip(), " ".join(hyps).rstrip(), " ".join(marks).rstrip(), ""]
    return "\n".join(lines)
