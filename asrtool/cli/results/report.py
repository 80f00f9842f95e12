"""``asrtool report``."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command

FILE = click.Path(path_type=Path)


@click.command(cls=Command)
@click.argument("works", metavar="WORK...", type=FILE, nargs=-1, required=True)
@click.option(
    "--out",
    metavar="FOLDER",
    type=FILE,
    help="Where the report of several experiments goes.  [default: that of one is beside it]",
)
@click.option(
    "--config",
    "configs",
    metavar="FILE",
    type=FILE,
    multiple=True,
    help="Settings of one run.  [default: what it wrote]",
)
@click.option(
    "--clips",
    "num_clips",
    metavar="N",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Utterances, the worst of each set, whose audio is put into the page.",
)
def report(works: tuple[Path, ...], out: Path | None, configs: tuple[Path, ...], num_clips: int) -> None:
    """Write RESULTS.md and RESULTS.html: error rates with intervals, errors, training, data, settings and command.

    Reads score/, decode/, tune/, train/, manifests/ and config/ of the work directory WORK, and writes there, with
    figures in WORK/report. Several are put side by side, with paired tests, in FOLDER.

    \b
    Examples:
      asrtool report exp
      asrtool report exp/small exp/large --out exp/compared
    """
    from asrtool.report.write import write_report, write_side_by_side

    if len(works) > 1 and (out is None or configs):
        raise click.UsageError("several experiments need --out FOLDER, and each has settings of its own, not --config")
    if len(works) == 1 and out is not None:
        raise click.UsageError("--out is of several experiments; the report of one is written beside it")
    paths = write_report(works[0], configs, num_clips) if out is None else write_side_by_side(works, out, num_clips)
    for path in paths:
        click.echo(path)
