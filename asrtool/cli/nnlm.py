"""`asrtool nnlm`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command()
@click.argument("text", type=click.Path(path_type=Path))
@click.argument("dev_text", type=click.Path(path_type=Path))
@click.argument("words", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def nnlm(text: Path, dev_text: Path, words: Path, out: Path, config: Config) -> None:
    """Train an LSTM language model on the sentences of TEXT, with those of DEV_TEXT to compare epochs.

    WORDS is the words.txt of `asrtool lang`. Writes OUT/model.pt, OUT/checkpoint.pt and at the end OUT/nnlm.json. The
    same command goes on where an earlier one was stopped or killed. Settings: [nnlm].
    """
    from asrtool.train.nnlm import train_neural_lm

    train_neural_lm(text, dev_text, words, out, config.nnlm)
