"""`asrtool decode`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command()
@click.argument("work", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def decode(work: Path, out: Path, config: Config) -> None:
    """Recognise the dev and test sets of a run.

    Reads WORK/{average/model.pt,features,tokenizer,lm/G.arpa,graph}. Writes OUT/{dev,test}/METHOD.ctm, OUT/tuning.tsv
    (the language-model weights tried on dev) and OUT/decode.json (those chosen, and real-time factors).
    """
    from asrtool.decode.decode import decode_run

    decode_run(work, out, config.decode)
