"""`asrtool check`."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from asrtool.cli.command import Command
from asrtool.cli.data.prepare import Place
from asrtool.cli.options import allow_pipes_option, settings_options
from asrtool.errors import AsrtoolError
from asrtool.files import check_own
from asrtool.log import named
from asrtool.settings.config import Config

if TYPE_CHECKING:
    from asrtool.report.data_check import Page


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
    audio that was recorded at a lower rate than it has. What the stage prepare would set aside is listed, however much
    it is. With OUT, pictures, a table of all utterances and all that is set aside (dropped.tsv) are written there.
    Settings: [data], features.num_jobs.

    \b
    Example: asrtool check exp/manifests/train exp/check
    """
    from asrtool.data.manifests.manifest import REPORT
    from asrtool.local.layouts.detect import check_apart
    from asrtool.report.data_check import PAGE, check_manifests

    if out:
        check_apart(data, out)
        check_own(out, [PAGE])  # before hours of audio are listened to
    if (data / REPORT).is_file():
        page = check_manifests(data, out, config.features.num_jobs)
    else:
        with tempfile.TemporaryDirectory(prefix="asrtool-check-") as folder:
            page = _check_data(data, Path(folder) / "manifests", out, config)
    click.echo(page.text, nl=False)
    if not page.num_utterances:
        raise AsrtoolError(f"{data}: not one usable utterance", "correct what is set aside or cannot be read")


def _check_data(data: Path, manifests: Path, out: Path | None, config: Config) -> Page:
    """Check `data` by temporary `manifests`, however much cannot be used."""
    from asrtool.data.manifests.manifest import rejected
    from asrtool.local.layouts.detect import prepare_any
    from asrtool.report.data_check import check_manifests, check_rejected

    with named(manifests, str(data)):
        try:
            prepare_any(data, manifests, replace(config.data, bad_fraction=1.0), "check")
        except AsrtoolError:
            if not rejected(manifests).is_file():  # the data cannot be read at all
                raise
            return check_rejected(manifests, out)
        return check_manifests(manifests, out, config.features.num_jobs)
