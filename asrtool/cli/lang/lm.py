"""asrtool lm: estimate a word n-gram."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import settings_options
from asrtool.settings.config import Config


@click.command(cls=Command, groups={"Text": ("texts", "extra", "held_out", "words"), "N-gram": ("arpa", "order")})
@click.option(
    "--text",
    "texts",
    type=click.Path(path_type=Path),
    required=True,
    multiple=True,
    metavar="FILE...",
    help="Sentences, one a line; a folder stands for its sentences.CORPUS.txt.",
)
@click.argument("more_texts", nargs=-1, type=click.Path(path_type=Path), metavar="")
@click.option(
    "--extra",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="What `asrtool prepare text` wrote: more texts.  [default: none]",
)
@click.option(
    "--heldout",
    "held_out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Sentences to tune the weights of several texts on, and to log the perplexity of.  [default: none]",
)
@click.option(
    "--words", type=click.Path(path_type=Path), help="words.txt; others become <unk>.  [default: all words of the text]"
)
@click.option(
    "--arpa",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="OUT",
    help="ARPA file to write.",
)
@click.option("--order", type=click.IntRange(1, 6), help="Longest n-gram, in words.  [default: lm.order]")
@settings_options
def lm(
    texts: tuple[Path, ...],
    more_texts: tuple[Path, ...],
    extra: Path | None,
    held_out: Path | None,
    words: Path | None,
    arpa: Path,
    order: int | None,
    config: Config,
) -> None:
    """Estimate an n-gram with interpolated modified Kneser-Ney smoothing.

    Several texts with --heldout are one model each, mixed; without it they are one text.

    \b
    Example: asrtool lm --order 4 --text swbd.txt fisher.txt --heldout dev.txt --words exp/lang/words.txt --arpa G.arpa
    """
    from asrtool.files import writing
    from asrtool.lang.ngram.estimate import LARGE, build_lm
    from asrtool.lang.text import extra_files

    further = extra_files(extra, config.lm.extra_text) if extra else []
    settings = dataclasses.replace(config.lm, order=order or config.lm.order)
    with writing(arpa, *([arpa.parent / LARGE] if settings.large else [])):
        build_lm([*texts, *more_texts, *further], arpa, settings, words, held_out)
