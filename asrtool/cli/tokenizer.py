"""asrtool tokenizer: the pieces that the acoustic model spells words with."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command()
@click.argument("sentences", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def tokenizer(sentences: Path, out: Path, config: Config) -> None:
    """Train a SentencePiece BPE model of tokenizer.vocab_size pieces on SENTENCES, one a line, into the folder OUT.

    \b
    Example: asrtool tokenizer exp/manifests/train/sentences.txt exp/tokenizer --set tokenizer.vocab_size=120
    """
    from asrtool.lang.tokenizer import train_tokenizer

    train_tokenizer(sentences, out, config.tokenizer.vocab_size)
