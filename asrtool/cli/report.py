"""``asrtool report``."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command()
@click.argument("work", type=click.Path(path_type=Path))
@settings_options
def report(work: Path, config: Config) -> None:
    """Write WORK/RESULTS.md: word error rates, command, settings, commit, hours, parameters and figures (WORK/report).

    Reads score/, decode/, train/, manifests/ and config/run.json of the work directory WORK.
    """
    from asrtool.report.results import write_results

    click.echo(write_results(work, config))
