"""`asrtool features`: manifests to filterbank features."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import executor_option, settings_options
from asrtool.settings.config import Config


@click.command(cls=Command)
@click.argument("manifests", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@executor_option
@settings_options
def features(manifests: Path, out: Path, config: Config) -> None:
    """Compute the features of MANIFESTS/SET into OUT/SET, for each set that MANIFESTS/sets.json lists.

    The settings are the section [features]. The training set gets a copy at each of features.speeds. Features that have
    all utterances of MANIFESTS stay as they are: texts are joined when they are read. Audio is known by its contents
    where OUT is in the work folder of `asrtool run`, elsewhere by sizes and times of its files.

    \b
    Example: asrtool features exp/manifests exp/features --config exp/config/features.toml
    """
    from asrtool.data.features.cache_key import sizes_and_times
    from asrtool.data.features.compute_sets import compute_features
    from asrtool.recipe.contents import CACHE, contents_of
    from asrtool.recipe.source import Entry, code_of

    code = code_of(Entry(__name__, "features"), config, ("features",))
    known = contents_of(out.parent).of_files if (out.parent / CACHE).exists() else sizes_and_times
    compute_features(manifests, out, config.features, code, known)
