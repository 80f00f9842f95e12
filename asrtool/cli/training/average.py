"""`asrtool average`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import settings_options
from asrtool.settings.config import Config


@click.command(cls=Command)
@click.argument("train_dir", metavar="TRAIN", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@settings_options
def average(train_dir: Path, out: Path, config: Config) -> None:
    """Average checkpoints of TRAIN into one model file OUT. Settings: [average].

    \b
    Example: asrtool average exp/train exp/average/model.pt --set average.num=1
    """
    from asrtool.files import writing
    from asrtool.train.average import average_checkpoints

    with writing(out):
        average_checkpoints(train_dir, out, config.average.by, config.average.num)
