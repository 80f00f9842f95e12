"""`asrtool align`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command(cls=Command)
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("features", type=click.Path(path_type=Path))
@click.argument("tokenizer", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def align(model: Path, features: Path, tokenizer: Path, out: Path, config: Config) -> None:
    """Write when each word and token of the transcripts was said.

    FEATURES is one set with its texts. Writes OUT/words.ctm, OUT/tokens.ctm and OUT/dropped.tsv (utterances too short
    for their text). Settings: decode.batch_s, decode.num_jobs.

    \b
    Example: asrtool align exp/average/model.pt exp/features/dev exp/tokenizer exp/align
    """
    from asrtool.corpus.remote import open_features
    from asrtool.decode.align import align_run

    align_run(model, open_features(features, config.remote), tokenizer, out, config.decode)
