"""`asrtool info`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command


@click.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
def info(file: Path) -> None:
    """Print what a bundle or model file is, after checking that it is whole.

    \b
    Example: asrtool info swbd.asrtool
    """
    from asrtool.bundle.info import describe_file

    click.echo(describe_file(file))
