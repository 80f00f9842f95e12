"""Alignments as one HTML page without outside resources: errors in colour and with a letter, speakers by link."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from html import escape
from itertools import groupby

from asrtool.score.result import Counts, Pair, Result, Segment

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.3 sans-serif; margin: 1em auto; max-width: 75em; padding: 0 1em; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 0 .6em; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
h3 {{ font-size: 1em; margin: 1em 0 .2em; }}
h3 small {{ font-weight: normal; }}
p {{ margin: 0; }}
a {{ color: inherit; }}
span {{ display: inline-block; vertical-align: top; margin: 0 .35em .3em 0; border-radius: .2em; padding: 0 .15em; }}
span i {{ display: block; font-style: normal; min-height: 1.3em; }}
.S {{ background: #ffe08a; color: #000; }}
.D {{ background: #ffb3a7; color: #000; }}
.I {{ background: #a9d3ff; color: #000; }}
.S i:last-child, .D i:last-child, .I i:last-child {{ font-weight: bold; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>Reference over hypothesis; <span class="S">S substituted</span><span class="D">D deleted</span>
<span class="I">I inserted</span></p>
"""
_COLUMNS = ("segments", "words", "corr", "sub", "del", "ins", "err")


def format_html(result: Result, name: str) -> str:
    """The page of a result: a table of the speakers, then each segment, reference over hypothesis."""
    return "".join([_HEAD.format(title=escape(name)), *_table(result), *_segments(result), "</body>\n</html>\n"])


def _table(result: Result) -> Iterator[str]:
    heads = "".join(f"<th>{head}</th>" for head in ("speaker", *_COLUMNS, "WER %"))
    yield f"<table>\n<tr>{heads}</tr>\n"
    links = {speaker: f'<a href="#speaker-{number}">{escape(speaker)}</a>' for number, speaker in _numbers(result)}
    for speaker, counts in result.speakers.items():
        yield _row(links[speaker], counts)
    yield _row("Overall", result.overall) + "</table>\n"


def _row(name: str, counts: Counts) -> str:
    wer = "-" if counts.wer is None else f"{counts.wer:.1f}"
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in (name, *counts.to_dict().values(), wer))}</tr>\n"


def _numbers(result: Result) -> Iterator[tuple[int, str]]:
    return iter(enumerate(result.speakers))


_escape = functools.lru_cache(1 << 16)(escape)


class _Cells(dict[Pair, str]):
    def __missing__(self, pair: Pair) -> str:
        kind, ref, hyp = pair
        words = f"<i>{_escape(ref)}</i><i>{_escape(hyp)}</i>"
        self[pair] = cell = (
            f"<span>{words}</span>" if kind == "C" else f'<span class="{kind}">{words}<i>{kind}</i></span>'
        )
        return cell


def _segments(result: Result) -> Iterator[str]:
    cells = _Cells()
    numbers = {speaker: number for number, speaker in _numbers(result)}
    by_speaker = sorted(result.segments, key=lambda segment: numbers[segment.speaker])
    for speaker, group in groupby(by_speaker, key=lambda segment: segment.speaker):
        yield f'<h2 id="speaker-{numbers[speaker]}">{escape(speaker)}</h2>\n'
        for segment in group:
            yield _segment(segment, cells)


def _segment(segment: Segment, cells: _Cells) -> str:
    counts = segment.alignment.counts
    times = "" if segment.start_s is None else f"{segment.start_s:.2f} to {segment.end_s:.2f} s; "
    labels = f"{', '.join(segment.labels)}; " if segment.labels else ""
    facts = f"{times}{_escape(labels)}{counts.corr} C, {counts.sub} S, {counts.del_} D, {counts.ins} I"
    words = "".join([cells[pair] for pair in segment.alignment.pairs])
    return f"<h3>{escape(segment.id)} <small>{facts}</small></h3>\n<p>{words}</p>\n"
