"""`asrtool cut`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import MODEL_FILE, TOKENIZER, settings_options
from asrtool.settings.config import Config


@click.command(cls=Command)
@click.argument("model", type=MODEL_FILE)
@click.argument("manifests", type=click.Path(path_type=Path))
@click.argument("features", type=click.Path(path_type=Path))
@click.argument("tokenizer", type=TOKENIZER)
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def cut(model: Path, manifests: Path, features: Path, tokenizer: Path, out: Path, config: Config) -> None:
    """Cut the utterances of MANIFESTS/long at pauses, which MODEL finds by forced alignment.

    Writes OUT/features, which are FEATURES with the pieces behind the training set, OUT/pieces.tsv and OUT/dropped.tsv
    (utterances that could not be cut). Settings: data.max_duration_s, decode.batch_s, decode.num_jobs.

    \b
    Example: asrtool cut exp/cutter/model.pt exp/manifests exp/features exp/tokenizer exp/cut
    """
    from asrtool.decode.align.cut import cut_run

    cut_run(model, manifests, features, tokenizer, out, config.decode, config.data)
