"""asrtool lm: estimate a word n-gram."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command()
@click.option(
    "--text",
    "first_text",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE...",
    help="Sentences, one a line.",
)
@click.argument("more_text", nargs=-1, type=click.Path(path_type=Path), metavar="")
@click.option(
    "--words", type=click.Path(path_type=Path), help="words.txt; others become <unk>. Default: all words of the text."
)
@click.option("--arpa", type=click.Path(path_type=Path), required=True, metavar="OUT", help="ARPA file to write.")
@click.option("--order", type=click.IntRange(1, 6), help="Longest n-gram; lm.order if not given.")
@settings_options
def lm(
    first_text: Path, more_text: tuple[Path, ...], words: Path | None, arpa: Path, order: int | None, config: Config
) -> None:
    """Estimate an n-gram with interpolated modified Kneser-Ney smoothing.

    \b
    Example: asrtool lm --order 3 --text swbd.txt fisher.txt --words exp/lang/words.txt --arpa exp/lm/G.arpa
    """
    from asrtool.lang.arpa import write_arpa
    from asrtool.lang.kneser_ney import estimate
    from asrtool.lang.symbols import read_symbols

    vocabulary = read_symbols(words, "lang") if words else None
    write_arpa(arpa, estimate((first_text, *more_text), vocabulary, order or config.lm.order, config.lm.min_counts))
