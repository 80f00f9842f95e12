"""`asrtool train`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.options import settings_options
from asrtool.config import Config


@click.command()
@click.argument("features", type=click.Path(path_type=Path))
@click.argument("tokenizer", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@settings_options
def train(features: Path, tokenizer: Path, out: Path, config: Config) -> None:
    """Train the acoustic model on FEATURES/train, with FEATURES/dev to compare checkpoints.

    Writes OUT/checkpoints, OUT/metrics.jsonl, OUT/tensorboard and at the end OUT/train.json. The same command goes on
    where an earlier one was stopped or killed. Settings: [model], [specaugment], [train].
    """
    from asrtool.train.train import train_model

    train_model(features, tokenizer, out, config)
