"""`asrtool targets`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import MODEL_FILE, TOKENIZER, cut_option, settings_options
from asrtool.settings.config import Config


@click.command(cls=Command)
@click.argument("model", type=MODEL_FILE)
@click.argument("features", type=click.Path(path_type=Path))
@click.argument("tokenizer", type=TOKENIZER)
@click.argument("out", type=click.Path(path_type=Path))
@cut_option
@settings_options
def targets(model: Path, features: Path, tokenizer: Path, out: Path, cut: Path | None, config: Config) -> None:
    """Align features by MODEL, and grow a decision tree of the states of tokens.

    It aligns FEATURES/train and FEATURES/dev. MODEL may be of any objective with a topology, also a hybrid model, whose
    alignment is then made anew. Writes OUT/train and OUT/dev (which token was said in which frames), OUT/tree.npz and
    OUT/targets.json. Settings: [tree], decode.batch_s, decode.num_jobs, data.cut_long.

    \b
    Example: asrtool targets exp/aligner/model.pt exp/features exp/tokenizer exp/targets
    """
    from asrtool.data.manifests.sets import DEV, TRAIN, with_pieces
    from asrtool.data.remote.features import open_features
    from asrtool.decode.align.frame_targets import targets_run

    features = open_features(features, config.remote, (TRAIN, DEV))
    targets_run(model, with_pieces(features, cut, config.data), tokenizer, out, config.decode, config.tree)
