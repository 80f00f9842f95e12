"""Settings of Sphinx for the manual, which `make docs` builds into build/docs.

The source is the root of the repository, so a link leads to the same page here and in a checkout.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from asrtool.cli.command import Command

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
KINDS = ("docs/tutorials/index", "docs/how-to", "docs/reference/index", "docs/explanation")

project = "asrtool"
copyright = "the authors of asrtool"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "benchmarks/README.md", "recipes/*/*.md"]
exclude_patterns = [".*", "build", "asrtool", "local", "tests", "utils", "recipes/*/exp*", "exp*"]
myst_heading_anchors = 4
default_role = "code"
highlight_language = "bash"
autodoc_member_order = "bysource"
smartquotes = False  # they make a dash of --

html_theme = "furo"
html_title = "asrtool"
html_copy_source = False
html_show_sphinx = False
html_search_scorer = str(ROOT / "docs" / "search.js")

# Figures of strategies: learner 1 is three times slower.
SCENARIO = (
    "distributed.num_learners=4",
    "distributed.strategy=allreduce,adpsgd-d1,bmuf,h-adpsgd,ps-async,adpsgd-fixed,adpsgd-random,hogwild",
    "slow.learners=1:3",
    "compute.distribution=lognormal",
    "compute.spread=0.1",
    "network.inner_gbit_per_s=25",
    "distributed.h-adpsgd.node_size=2",
    "distributed.bmuf.block_steps=3",
    "job.num_samples=40_000",
)
SHOWN_S = 2.0


class Errors(Directive):
    """All errors of the sources, by module: text, and what to do."""

    def run(self) -> list[nodes.Node]:
        from error_texts import errors

        sections: dict[str, nodes.section] = {}
        for place, what, hint in errors():
            name = place.partition(":")[0]
            if name not in sections:
                sections[name] = nodes.section(
                    "", nodes.title("", name), nodes.bullet_list(), ids=[nodes.make_id(name)]
                )
            text = nodes.paragraph("", "", nodes.strong("", what), nodes.Text(f": {hint}"))
            sections[name][1].append(nodes.list_item("", text))
        return list(sections.values())


class TimeLines(Directive):
    """Steps of four learners by strategy, one of them slow: simulated and drawn."""

    def run(self) -> list[nodes.Node]:
        from asrtool.predict.simulate.records import write_records
        from asrtool.predict.simulate.scenario import load_scenario
        from asrtool.report.figures.figure import COLOURS, PARTS

        with tempfile.TemporaryDirectory() as folder:
            figures = [format_time_line(path) for path in write_records(load_scenario((), SCENARIO), Path(folder))]
        colours = ";".join(f"{variable[4:-1]}:{colour}" for colour, variable in COLOURS.items())
        grid = "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(18rem,100%),1fr));gap:1rem"
        about = "Simulated, learner 1 three times slower: "
        about += " ".join(f'<span style="color:{colour}">■</span> {part}' for part, colour in PARTS.items())
        style = f"{grid};fill:currentColor;{colours}"
        return [nodes.raw("", f'<p>{about}</p><div style="{style}">{"".join(figures)}</div>', format="html")]


def format_time_line(train: Path) -> str:
    """Format some seconds in the middle of a simulated training as HTML."""
    from asrtool.report.figures.draw_training import draw_steps, time_fractions, timeline_windows
    from asrtool.report.figures.figure import narrow_svg
    from asrtool.report.training import read_training

    run = read_training(train)
    begin, _ = timeline_windows(run)[1]
    waits = [f"{100 * time_fractions(run, rank)['wait']:.0f}" for rank in run.learners]
    who = f"learners wait {', '.join(waits)} % of their time" if {*waits} != {"0"} else "nobody waits"
    text = f"{run.num_steps / run.seconds:.0f} steps a second; {who}"

    def draw(figure: Figure) -> None:
        figure.set_figheight(1.4)
        axes = figure.subplots()
        draw_steps(axes, run, (begin, begin + SHOWN_S), begin)
        axes.set(xlabel="seconds")

    return (
        f'<figure role="img" aria-label="time line of four learners under {run.strategy}: {text}" style="margin:0">'
        f"{narrow_svg(draw, run.strategy)}<figcaption><code>{run.strategy}</code>: {text}</figcaption></figure>"
    )


def drop_arguments(_: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Leave out the list of arguments: the text of a command describes them."""
    lines.clear()


def add_examples(_: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Append the examples of a command, which its help ends with."""
    if isinstance(context.command, Command) and context.command.examples:
        examples = "\n".join(context.command.examples).split("\n")
        lines += [".. code-block:: bash", "", *(f"    {line}" for line in examples), ""]


def add_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """Add what GitHub would show as code: the table of contents, and figures."""
    source[0] = source[0].replace("<!-- time lines: docs/conf.py puts them here -->", "```{time-lines}\n```")
    if page == root_doc:
        source[0] += "\n".join(["\n```{toctree}", ":hidden:", *(f"/{kind}" for kind in KINDS), "```\n"])


def write_first_page(app: Sphinx, _: Exception | None) -> None:
    """Lead index.html to the first page."""
    page = Path(app.outdir, "index.html")
    page.write_text(f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n', encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.add_directive("errors", Errors)
    app.add_directive("time-lines", TimeLines)
    app.connect("sphinx-click-process-arguments", drop_arguments)
    app.connect("sphinx-click-process-epilog", add_examples)
    app.connect("source-read", add_contents)
    app.connect("build-finished", write_first_page)
