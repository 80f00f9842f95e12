"""Counts, confusions and alignments as text."""

from __future__ import annotations

import functools
import json
import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from asrtool.score.lines import upper
from asrtool.score.result import Result, Segment

# Segments and words of NIST's test sets, over all and by label, as Kaldi's recipes count them with sclite.
SIZES = {
    "Hub5'00": {"": (4459, 42989), "SW": (1831, 21395), "EN": (2628, 21594)},
    "RT-03": {"": (8420, 76157)},
}
COLUMNS = ("segments", "words", "corr", "sub", "del", "ins", "err", "WER %", "CER %")


def name_of(result: Result, name: str) -> str:
    """Return the title of the published test set with these counts, else `name`."""
    found = {"": result, **{label.upper(): part for label, part in result.labels.items()}}
    sizes = {label: (part.overall.segments, part.overall.num_words) for label, part in found.items()}
    return next((title for title, wanted in SIZES.items() if wanted.items() <= sizes.items()), name)


def format_json(result: Result) -> str:
    """Format counts overall, by label and by speaker as a JSON object."""
    return json.dumps(result.to_dict(), indent=1) + "\n"


def format_table(result: Result, name: str) -> str:
    """Format a line for all segments and one for each label."""
    titles = {label: title or label for label, title in result.titles.items()}
    rows = [(titles.get(label, label), part) for label, part in result.labels.items() if label.upper() != "O"]
    return f"{name_of(result, name)}\nscored {result.scored}\n\n{_format(rows, result)}"


def format_speakers(result: Result) -> str:
    """Format a line for each speaker, and their sum."""
    return _format(result.speakers.items(), result)


def format_confusions(result: Result) -> str:
    """Format substitutions, deletions and insertions, the most frequent first."""
    pairs = Counter([pair for segment in result.segments for pair in segment.alignment.errors])
    lines = []
    for kind, title in (("S", "substitutions"), ("D", "deletions"), ("I", "insertions")):
        counts = {pair: count for pair, count in pairs.items() if pair.kind == kind}
        lines.append(f"{sum(counts.values())} {title}, {len(counts)} different")
        for pair, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            words = f"{pair.ref} -> {pair.hyp}" if kind == "S" else pair.ref or pair.hyp
            lines.append(f"{count:6d}  {words}")
        lines.append("")
    return "\n".join(lines)


def format_rate(rate: float | None, decimals: int = 2) -> str:
    """Format a rate in percent; `-` for none."""
    return "-" if rate is None else f"{rate:.{decimals}f}"


def _format(rows: Iterable[tuple[str, Result]], result: Result) -> str:
    named = [*rows, ("Overall", result)]
    width = max(len(name) for name, _ in named)
    lines = [" " * width + "".join(f"{head:>9}" for head in COLUMNS)]
    for name, part in named:
        cells = (*part.overall.to_dict().values(), format_rate(part.overall.wer), format_rate(part.characters.cer))
        lines.append(f"{name:<{width}}" + "".join(f"{cell:>9}" for cell in cells))
    return "\n".join(lines) + "\n"


@functools.lru_cache(1 << 16)
def _column(kind: str, ref: str, hyp: str) -> tuple[str, str, str]:
    """Return reference, hypothesis and outcome of a pair, one below another."""
    width = max(len(ref), len(hyp), 1)
    if kind == "C":
        kind = ""
    else:
        ref, hyp = upper(ref), upper(hyp)
    nothing = "*" * width
    return (ref or nothing).ljust(width), (hyp or nothing).ljust(width), kind.ljust(width)


def format_alignments(result: Result) -> str:
    """Format one block a segment, in the order of scoring."""
    return "\n".join(map(_format_segment, result.segments))


def _format_segment(segment: Segment) -> str:
    aligned = segment.alignment
    counts = aligned.counts
    lines = [f"id: ({segment.id})"]
    if segment.labels:
        lines.append(f"Labels: <{','.join(segment.labels)}>")
    if segment.start_s is not None:
        lines.append(f"Time: {segment.file} {segment.channel} {segment.start_s:.2f} {segment.end_s:.2f}")
    lines.append(f"Scores: (#C #S #D #I) {counts.corr} {counts.sub} {counts.del_} {counts.ins}")
    columns = map(_column, aligned.outcomes, aligned.refs, aligned.hyps)
    refs, hyps, marks = zip(("REF: ", "HYP: ", "Eval:"), *columns, strict=True)
    lines += [" ".join(refs).rstrip(), " ".join(hyps).rstrip(), " ".join(marks).rstrip(), ""]
    return "\n".join(lines)


def warn_of_no_words(result: Result, hyp: Path) -> None:
    """Warn if the hypothesis `hyp` has no words for the scored segments."""
    counts = result.overall
    if counts.num_words and not any(any(segment.alignment.hyps) for segment in result.segments):
        logging.warning("%s: has no words for the %d segments, so all words count as deleted", hyp, counts.segments)
