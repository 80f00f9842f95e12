"""`asrtool tune`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import MODEL_FILE, executor_option, search_folders, settings_options
from asrtool.settings.config import Config
from asrtool.settings.schema import SEARCHED

COLUMN = 13  # characters


@click.command(cls=Command, groups={"What the searches read": SEARCHED})
@click.argument("model", type=MODEL_FILE)
@click.argument("features", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@search_folders
@executor_option
@settings_options
def tune(model: Path, features: Path, out: Path, folders: Mapping[str, Path | None], config: Config) -> None:
    """Choose the decoding parameters of each method by its word errors on the set FEATURES, the dev set.

    A folder is needed only where a method of decode.methods reads it. Writes OUT/tuning.json (what was chosen, for
    `asrtool decode`) and OUT/tuning.tsv (all that was tried), and prints the latter. Settings: [decode], lm.large,
    nnlm.enabled, nnlm.precision.

    \b
    Example: asrtool tune exp/average/model.pt exp/features/dev exp/tune --tokenizer exp/tokenizer \\
      --lang exp/lang --lm exp/lm --graph exp/graph --config exp/config/decode.toml
    """
    from asrtool.data.remote.features import open_features
    from asrtool.decode.tune import tune_run

    features = open_features(features, config.remote)
    click.echo(tune_run(model, features, out, folders, config).expandtabs(COLUMN), nl=False)
