"""`asrtool check`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import allow_pipes_option, settings_options
from asrtool.cli.prepare import Place
from asrtool.config import Config


@click.command(cls=Command)
@click.argument("data", type=Place(path_type=Path, exists=True))
@click.argument("out", type=click.Path(path_type=Path, file_okay=False), required=False)
@allow_pipes_option
@settings_options
def check(data: Path, out: Path | None, config: Config) -> None:
    """Listen to all of DATA and report what looks wrong, before hours are spent on it.

    DATA is what paths.own_train may be, a folder of audio with texts, a Kaldi data directory, a manifest, lhotse's
    manifests or Shar, or a folder of manifests that the stage prepare wrote. Found are files that end before their
    header says, text that is too long or too short for its audio, silence, clipping, noise, several sampling rates, and
    audio that was recorded at a lower rate than it has. With OUT, pictures and a table of all utterances are written
    there. Settings: [data], features.num_jobs.

    \b
    Example: asrtool check exp/manifests/train exp/check
    """
    from asrtool.corpus.manifest import REPORT
    from asrtool.report.data_check import check_manifests
    from local.layouts.detect import prepare_any

    num_jobs = config.features.num_jobs
    if (data / REPORT).is_file():
        click.echo(check_manifests(data, out, num_jobs), nl=False)
        return
    with tempfile.TemporaryDirectory(prefix="asrtool-check-") as folder:
        manifests = Path(folder) / "manifests"
        prepare_any(data, manifests, config.data, "check")
        click.echo(check_manifests(manifests, out, num_jobs), nl=False)
