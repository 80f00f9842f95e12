"""`asrtool tune`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config

COLUMN = 13  # characters


@click.command()
@click.argument("work", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def tune(work: Path, out: Path, config: Config) -> None:
    """Choose language-model weight, word penalty and beam of each method by its word errors on dev.

    Reads WORK/{average/model.pt,features/dev,tokenizer,lang,lm/G.arpa,graph}, and to rescore lm/large.arpa with
    lm.large and nnlm/model.pt with nnlm.enabled. Writes OUT/tuning.json (what was chosen, for `asrtool decode`) and
    OUT/tuning.tsv (all that was tried), and prints the latter. Settings: [decode], lm.large, nnlm.enabled.
    """
    from asrtool.decode.tune import tune_run

    click.echo(tune_run(work, out, config).expandtabs(COLUMN), nl=False)
