"""Draw docs/pipeline.svg, the stages of a recipe and what they pass on.

.venv/bin/python docs/pipeline.py
"""

from __future__ import annotations

from pathlib import Path

from asrtool.recipe.stage import number_stages
from asrtool.recipe.stages import COMMON, CORPUS, PREPARE

SVG = Path(__file__).with_suffix(".svg")
WIDTH, HEIGHT, STEP, ROW = 150, 72, 180, 124  # pixels; boxes repeat after STEP to the right and ROW below
MARGIN, CORRIDOR = 20, 26  # of the picture; from a box down to where an arrow turns
BOXES: dict[str, tuple[tuple[int, int], list[str]]] = {  # row and column, and lines, of a stage
    "corpus": ((0, 0), ["LDC releases, or a", "mini corpus like them"]),
    "prepare": ((0, 1), ["manifests, text rules,", "dev split"]),
    "features": ((0, 2), ["filterbanks, speeds,", "normalisation"]),
    "tokenizer": ((1, 1), ["BPE pieces"]),
    "lang": ((1, 2), ["lexicon, symbols"]),
    "lm": ((1, 3), ["n-gram, ARPA"]),
    "graph": ((1, 4), ["H o L o G"]),
    "train": ((2, 0), ["acoustic model"]),
    "average": ((2, 1), ["mean of checkpoints"]),
    "decode": ((2, 2), ["greedy, beam, graph", "weights from dev"]),
    "score": ((2, 3), ["Hub5'00 rules:", "SWB, CallHome, all"]),
    "report": ((2, 4), ["RESULTS.html"]),
}
COLOURS, RESULTS = ("#e8eef7", "#eaf5ea", "#fbf0e0"), "#f7e6ea"  # by row; score and report
ENTERS = {("prepare", "tokenizer"): 75, ("features", "train"): 75, ("tokenizer", "train"): 105, ("graph", "decode"): 75}
HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 360" font-family="sans-serif" font-size="12" role="img" \
aria-label="Stages of a recipe and what they pass on">
<defs><style>@media (prefers-color-scheme: dark) { :root { filter: invert(0.9) hue-rotate(180deg) } }</style>\
<marker id="a" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">\
<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>
<rect width="920" height="360" fill="white"/>"""


def draw_pipeline() -> str:
    """Return the picture as SVG; KeyError if a stage that runs by default has no box."""
    stages = (CORPUS, PREPARE, *COMMON)
    names = {
        stage.name: number for stage, number in zip(stages, number_stages(stages), strict=True) if number.isdigit()
    }
    parts = [HEAD, *(draw_box(name, number) for name, number in names.items())]
    places = {BOXES[name][0] for name in names}
    for row, column in sorted(places):
        if (row, column + 1) in places:
            x, y = corner(row, column)
            parts.append(draw_arrow(f"M{x + WIDTH},{y + HEIGHT // 2} h{STEP - WIDTH - 2}"))
    for (begin, end), offset in ENTERS.items():
        (x, y), (end_x, end_y) = corner(*BOXES[begin][0]), corner(*BOXES[end][0])
        parts.append(draw_arrow(f"M{x + WIDTH // 2},{y + HEIGHT} v{CORRIDOR} H{end_x + offset} V{end_y - 2}"))
    return "\n".join([*parts, "</svg>\n"])


def corner(row: int, column: int) -> tuple[int, int]:
    """Return x and y of the upper left corner of a box."""
    return MARGIN + STEP * column, MARGIN + ROW * row


def draw_box(name: str, number: str) -> str:
    (row, column), lines = BOXES[name]
    x, y = corner(row, column)
    colour = RESULTS if name in ("score", "report") else COLOURS[row]
    texts = [f'<text x="{x + 10}" y="{y + 42 + 16 * k}" fill="#333">{line}</text>' for k, line in enumerate(lines)]
    box = f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{colour}" stroke="#555"/>'
    title = f'<text x="{x + 10}" y="{y + 22}" font-weight="bold" font-size="14">{number} {name}</text>'
    return "\n".join([box, title, *texts])


def draw_arrow(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="#555" stroke-width="1.4" marker-end="url(#a)"/>'


if __name__ == "__main__":
    SVG.write_text(draw_pipeline(), encoding="utf-8")
