"""`asrtool decode`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from asrtool.cli.options import executor_option, search_folders, settings_options
from asrtool.config import Config


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("features", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--tuning", type=click.Path(path_type=Path), metavar="FILE", required=True, help="The tuning.json to decode with."
)
@search_folders
@executor_option
@settings_options
def decode(
    model: Path, features: Path, out: Path, tuning: Path, folders: Mapping[str, Path | None], config: Config
) -> None:
    """Recognise FEATURES, a set or a folder of sets but for train, as `asrtool tune` chose.

    A folder is needed only where a method of decode.methods reads it. Writes OUT/SET/METHOD.ctm and OUT/decode.json
    (the decoding parameters, and real-time factors). Settings: [decode], lm.large, nnlm.enabled.

    \b
    Example: asrtool decode exp/average/model.pt exp/features exp/decode --tuning exp/tune/tuning.json \\
      --tokenizer exp/tokenizer --lang exp/lang --lm exp/lm --graph exp/graph
    """
    from asrtool.corpus.remote import open_features
    from asrtool.decode.decode import decode_run

    decode_run(model, open_features(features, config.remote), tuning, out, folders, config)
