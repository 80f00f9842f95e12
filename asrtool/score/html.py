"""Alignments as one HTML page without outside resources.

Errors have a colour and a letter. Segments are sorted by speaker or the worst first, and can be filtered.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from html import escape

from asrtool.score.result import Alignment, Result, Segment
from asrtool.score.tables import COLUMNS, format_rate

# For aligned words, here and on the page of a report.
WORD_STYLE = """.words span { display: inline-block; vertical-align: top; margin: 0 .35em .3em 0; border-radius: .2em;
padding: 0 .15em; max-width: 100%; overflow-wrap: anywhere; }
.words i { display: block; font-style: normal; min-height: 1.3em; }
.S { background: #ffe08a; color: #000; }
.D { background: #ffb3a7; color: #000; }
.I { background: #a9d3ff; color: #000; }
.S i:last-child, .D i:last-child, .I i:last-child { font-weight: bold; }
"""
_STYLE = f""":root {{ color-scheme: light dark; }}
body {{ font: 15px/1.3 sans-serif; margin: 1em auto; max-width: 75em; padding: 0 1em; }}
table {{ border-collapse: collapse; }}
div {{ overflow-x: auto; }}
th, td {{ padding: 0 .6em; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
h3 {{ font-size: 1em; margin: 1em 0 .2em; }}
h3 small {{ font-weight: normal; }}
p {{ margin: 0; }}
form {{ margin: .5em 0; }}
label {{ margin-right: 1.5em; }}
a {{ color: inherit; }}
.errors-only [data-errors="0"], .sorted h2 {{ display: none; }}
{WORD_STYLE}"""
_CONTROLS = """<form>
<label><input type="checkbox" id="errors-only"> errors only</label>
<label>order <select id="order">
<option value="">by speaker</option><option value="errors">most errors</option>
<option value="wer">highest error rate</option></select></label>
</form>
"""
# A browser keeps the choices when a page is reloaded, so both are applied at the end, too.
_SCRIPT = """const main = document.querySelector("main"), all = [...main.children];
const only = document.getElementById("errors-only"), order = document.getElementById("order");
function show() {
  const key = element => Number(element.dataset[order.value]);
  const segments = all.filter(element => element.dataset.errors !== undefined);
  main.className = (only.checked ? "errors-only " : "") + (order.value ? "sorted" : "");
  main.append(...(order.value ? segments.sort((a, b) => key(b) - key(a)) : all));
}
only.onchange = order.onchange = show;
show();
"""
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<h1>{title}</h1>
<p class="words">Reference over hypothesis; <span class="S">S substituted</span><span class="D">D deleted</span>
<span class="I">I inserted</span></p>
"""


def format_html(result: Result, name: str) -> str:
    """Format a result: a table of speakers, then reference over hypothesis."""
    head = _HEAD.format(title=escape(name), style=_STYLE)
    end = f"</main>\n<script>\n{_SCRIPT}</script>\n</body>\n</html>\n"
    return "".join([head, *_table(result), _CONTROLS, "<main>\n", *_segments(result), end])


def _table(result: Result) -> Iterator[str]:
    heads = "".join(f"<th>{head}</th>" for head in ("speaker", *COLUMNS))
    yield f"<div><table>\n<tr>{heads}</tr>\n"
    for number, (speaker, part) in enumerate(result.speakers.items()):
        yield _row(f'<a href="#speaker-{number}">{escape(speaker)}</a>', part)
    yield _row("Overall", result) + "</table></div>\n"


def _row(name: str, part: Result) -> str:
    rates = format_rate(part.overall.wer, 1), format_rate(part.characters.cer, 1)
    cells = (name, *part.overall.to_dict().values(), *rates)
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"


_escape = functools.lru_cache(1 << 16)(escape)


@functools.lru_cache(1 << 16)
def _cell(kind: str, ref: str, hyp: str) -> str:
    words = f"<i>{_escape(ref)}</i><i>{_escape(hyp)}</i>"
    return f"<span>{words}</span>" if kind == "C" else f'<span class="{kind}">{words}<i>{kind}</i></span>'


def _segments(result: Result) -> Iterator[str]:
    for number, (speaker, part) in enumerate(result.speakers.items()):
        yield f'<h2 id="speaker-{number}">{escape(speaker)}</h2>\n'
        yield from map(_segment, part.segments)


def format_words(aligned: Alignment) -> str:
    """Format words over one another, for an element of class ``words``."""
    return "".join(map(_cell, aligned.outcomes, aligned.refs, aligned.hyps))


def _segment(segment: Segment) -> str:
    counts = segment.alignment.counts
    where = f"{_escape(segment.file)} {_escape(segment.channel)}, " if segment.file else ""
    times = "" if segment.start_s is None else f"{segment.start_s:.2f} to {segment.end_s:.2f} s; "
    labels = f"{', '.join(segment.labels)}; " if segment.labels else ""
    facts = f"{where}{times}{_escape(labels)}{counts.corr} C, {counts.sub} S, {counts.del_} D, {counts.ins} I"
    keys = f'data-errors="{counts.err}" data-wer="{counts.err / max(counts.num_words, 1):.4f}"'
    heading = f"<h3>{escape(segment.id)} <small>{facts}</small></h3>"
    words = f'<p class="words" dir="auto">{format_words(segment.alignment)}</p>'
    return f"<section {keys}>{heading}\n{words}</section>\n"
