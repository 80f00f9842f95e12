"""`asrtool features`: manifests to filterbank features."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command()
@click.argument("manifests", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def features(manifests: Path, out: Path, config: Config) -> None:
    """Compute the features of MANIFESTS/SET into OUT/SET, for each set that MANIFESTS/sets.json lists.

    The settings are the section [features]. The training set gets a copy at each of features.speeds.
    """
    from asrtool.corpus.features import compute_features

    compute_features(manifests, out, config.features)
