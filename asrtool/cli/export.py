"""`asrtool export`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command


@click.command(cls=Command)
@click.argument("work", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--method", "methods", multiple=True, metavar="NAME", help="A search method to keep.  [default: all]")
def export(work: Path, out: Path, methods: tuple[str, ...]) -> None:
    """Pack what a run has trained into one file, which recognises anywhere.

    WORK is the --work of an `asrtool run` that has decoded. OUT holds weights, settings, tokenizer, lexicon, language
    models, graph and tuned weights, and nothing of the training data. Without graph and language model it is much
    smaller: --method greedy.

    \b
    Examples:
      asrtool export exp swbd.asrtool
      asrtool export exp small.asrtool --method greedy
    """
    from asrtool.bundle.export import export_bundle

    archive = export_bundle(work, out, methods)
    click.echo(f"{out}: {archive.num_bytes / 2**20:.1f} MiB, digest {archive.digest[:16]}")
