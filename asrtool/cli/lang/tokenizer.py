"""asrtool tokenizer: the tokens of the acoustic model."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import settings_options
from asrtool.settings.config import Config


@click.command(cls=Command)
@click.argument("sentences", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def tokenizer(sentences: Path, out: Path, config: Config) -> None:
    """Make the tokens for SENTENCES, one a line, in the folder OUT.

    tokenizer.unit = bpe trains a SentencePiece model of tokenizer.vocab_size pieces, 0 for as many as suit the text;
    phone takes the phones of the CMU Pronouncing Dictionary, and letter-to-sound rules for words it lacks.

    \b
    Example: asrtool tokenizer exp/manifests/train/sentences.txt exp/tokenizer --set tokenizer.vocab_size=0
    """
    from asrtool.lang.tokenizer import make_tokenizer

    make_tokenizer(sentences, out, config.tokenizer)
