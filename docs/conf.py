"""Settings of Sphinx for the manual, which `make docs` builds into build/docs.

The source is the root of the repository, so a link leads to the same page here and in a checkout.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from asrtool.cli.command import Command

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


def drop_arguments(_: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Leave out the list of arguments: the text of a command describes them."""
    lines.clear()


def add_examples(_: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Append the examples of a command, which its help ends with."""
    if isinstance(context.command, Command) and context.command.examples:
        examples = "\n".join(context.command.examples).split("\n")
        lines += [".. code-block:: bash", "", *(f"    {line}" for line in examples), ""]


def add_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """Append the table of contents, which GitHub would show as code."""
    if page == root_doc:
        source[0] += "\n".join(["\n```{toctree}", ":hidden:", *(f"/{kind}" for kind in KINDS), "```\n"])


def write_first_page(app: Sphinx, _: Exception | None) -> None:
    """Lead index.html to the first page."""
    page = Path(app.outdir, "index.html")
    page.write_text(f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n', encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.add_directive("errors", Errors)
    app.connect("sphinx-click-process-arguments", drop_arguments)
    app.connect("sphinx-click-process-epilog", add_examples)
    app.connect("source-read", add_contents)
    app.connect("build-finished", write_first_page)
