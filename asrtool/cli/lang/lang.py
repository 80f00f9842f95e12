"""asrtool lang: the lexicon and the symbol tables of the decoding graph."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import settings_options
from asrtool.settings.config import Config


@click.command(cls=Command)
@click.argument("sentences", type=click.Path(path_type=Path))
@click.argument("tokenizer", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--extra",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="What `asrtool prepare text` wrote: more words.  [default: none]",
)
@settings_options
def lang(sentences: Path, tokenizer: Path, out: Path, extra: Path | None, config: Config) -> None:
    """Tokenize the words of SENTENCES with the folder TOKENIZER; lexicon and symbol tables go to OUT.

    \b
    Example: asrtool lang exp/manifests/train/sentences.txt exp/tokenizer exp/lang
    """
    from asrtool.lang.lexicon import build_lang
    from asrtool.lang.text import extra_files

    further = extra_files(extra, config.lm.extra_text) if extra else []
    build_lang(sentences, tokenizer, out, config.lang.max_words, further)
