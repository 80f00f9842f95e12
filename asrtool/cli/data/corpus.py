"""`asrtool corpus`."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import settings_options
from asrtool.settings.config import Config


@click.command(cls=Command)
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def corpus(out: Path, config: Config) -> None:
    """Link the configured corpora under OUT, or make the mini corpus there.

    The corpora are those that data.train, data.dev and data.test name, and lm.extra_text for their transcripts; [paths]
    says where their releases lie.

    \b
    Example: asrtool corpus mini/corpus --set data.train=swbd --set data.test=hub5 --set mini.train_hours=0.01 \\
      --set mini.test_minutes=0.2
    """
    from asrtool.local.releases.gather import collect_corpora

    def make_mini(folder: Path, names: list[str]) -> None:
        from asrtool.local.mini.corpus import make_corpus

        hours = config.mini.train_hours
        logging.info("no path is configured: making the mini corpus, %g h of SYNTHETIC speech, under %s", hours, folder)
        make_corpus(folder, config.mini, names)

    collect_corpora(out, config.data, config.paths, make_mini, config.lm.extra_text)
