"""`asrtool corpus`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def corpus(out: Path, config: Config) -> None:
    """Link the configured corpora under OUT, or make the mini corpus there.

    The corpora are those that data.train and its test set need; [paths] says where they lie.
    """
    from local.ldc import collect_corpora

    def make_mini(folder: Path) -> None:
        from local.mini_corpus import make_corpus

        make_corpus(folder, config.mini)

    collect_corpora(out, config, make_mini)
