"""`asrtool plot`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command


@click.command(cls=Command)
@click.argument("train", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def plot(train: Path, out: Path) -> None:
    """Draw what the learners of a training did: OUT/training.md, and the figures in it as SVG.

    TRAIN is the OUT of `asrtool train`, finished or not. An earlier OUT is replaced.

    \b
    Example: asrtool plot exp/train exp/plot
    """
    from asrtool.report.figures.training_figures import plot_training

    click.echo(plot_training(train, out))
