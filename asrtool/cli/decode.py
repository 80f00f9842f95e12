"""`asrtool decode`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command()
@click.argument("work", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--tuning", type=click.Path(path_type=Path), metavar="FILE", help="Weights.  [default: WORK/tune/tuning.json]"
)
@settings_options
def decode(work: Path, out: Path, tuning: Path | None, config: Config) -> None:
    """Recognise the dev and test sets of a run with the weights that `asrtool tune` chose.

    Reads WORK/{average/model.pt,features,tokenizer,lang,lm/G.arpa,graph}, and to rescore lm/large.arpa with lm.large
    and nnlm/model.pt with nnlm.enabled. Writes OUT/{dev,test}/METHOD.ctm and OUT/decode.json (the weights, and
    real-time factors). Settings: [decode], lm.large, nnlm.enabled.
    """
    from asrtool.decode.decode import decode_run

    decode_run(work, tuning or work / "tune" / "tuning.json", out, config)
