"""asrtool lang: the lexicon and the symbol tables of the decoding graph."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command()
@click.argument("sentences", type=click.Path(path_type=Path))
@click.argument("tokenizer", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def lang(sentences: Path, tokenizer: Path, out: Path, config: Config) -> None:
    """Tokenize the words of SENTENCES with the folder TOKENIZER; lexicon and symbol tables go to OUT.

    \b
    Example: asrtool lang exp/manifests/train/sentences.txt exp/tokenizer exp/lang
    """
    from asrtool.lang.lexicon import build_lang

    build_lang(sentences, tokenizer, out, config.lang.max_words)
