"""`asrtool nnlm`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import settings_options
from asrtool.settings.config import Config


@click.command(cls=Command)
@click.argument("text", type=click.Path(path_type=Path))
@click.argument("dev_text", type=click.Path(path_type=Path))
@click.argument("words", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--extra",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="What `asrtool prepare text` wrote: more texts.  [default: none]",
)
@settings_options
def nnlm(text: Path, dev_text: Path, words: Path, out: Path, extra: Path | None, config: Config) -> None:
    """Train a neural language model on the sentences of TEXT.

    DEV_TEXT compares epochs. With --extra it learns from the texts of lm.extra_text as well, once an epoch, and from
    TEXT nnlm.repeats times.

    WORDS is the words.txt of `asrtool lang`. Writes OUT/checkpoints, OUT/metrics.jsonl, OUT/learners, OUT/tensorboard,
    OUT/model.pt, the weights of the best epoch, and at the end OUT/train.json. The same command resumes where an
    earlier one was stopped or killed. Settings: [nnlm], [distributed], lm.extra_text.

    \b
    Example: asrtool nnlm exp/manifests/train/sentences.txt exp/manifests/dev/sentences.txt \\
      exp/lang/words.txt exp/nnlm --config exp/config/nnlm.toml
    """
    from asrtool.lang.text import extra_files
    from asrtool.recipe.source import Entry, code_of
    from asrtool.train.inputs import NEURAL_LM
    from asrtool.train.nnlm import start_neural_lm

    code = code_of(Entry(__name__, "nnlm"), config, NEURAL_LM)
    further = extra_files(extra, config.lm.extra_text) if extra else []
    start_neural_lm(text, dev_text, words, out, config, code, further)
