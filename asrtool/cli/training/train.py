"""`asrtool train`."""

from __future__ import annotations

from pathlib import Path

import click

from asrtool.cli.command import Command
from asrtool.cli.options import (
    LEARNERS,
    cut_option,
    learners_options,
    settings_options,
    slow_option,
    targets_option,
)
from asrtool.settings.config import Config

MAX_MS = 3_600_000


@click.command(
    cls=Command,
    groups={
        "What other stages made": ("targets", "cut", "init", "aligner", "hybrid"),
        "Several learners": (*LEARNERS, "join"),
        "Speed": ("profile", "events", "compute_ms", "slow"),
    },
)
@click.argument("features", type=click.Path(path_type=Path))
@click.argument("tokenizer", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@learners_options
@slow_option("Straggler injection: stretch the compute of a learner.")
@click.option(
    "--compute-ms",
    type=click.FloatRange(0, MAX_MS),
    metavar="X",
    help="Emulated compute: wait X milliseconds a step instead.  [default: none]",
)
@click.option("--profile", is_flag=True, help="Write to OUT/profile where the time of ten steps goes.")
@click.option(
    "--events", is_flag=True, help="Write to OUT/events in which order weights change: asrtool simulate --replay."
)
@targets_option
@click.option("--aligner", is_flag=True, help="Train what aligns, as model.frame-ce.aligner.")
@click.option("--hybrid", is_flag=True, help="Train the hybrid model of frame-ce that lf-mmi begins with.")
@click.option(
    "--init",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="That model, unless train.init_model names one.  [default: none]",
)
@cut_option
@click.option("--join", is_flag=True, help="Join the training that runs in OUT as an extra learner.")
@settings_options
def train(
    features: Path,
    tokenizer: Path,
    out: Path,
    slow: tuple[tuple[int, float], ...],
    compute_ms: float | None,
    profile: bool,
    events: bool,
    targets: Path | None,
    aligner: bool,
    hybrid: bool,
    init: Path | None,
    cut: Path | None,
    join: bool,
    config: Config,
) -> None:
    """Train the acoustic model on FEATURES/train.

    FEATURES/dev compares checkpoints. Writes OUT/checkpoints, OUT/metrics.jsonl, OUT/learners, OUT/tensorboard and at
    the end OUT/train.json. The same command resumes where an earlier one was stopped or killed. Under torchrun each
    process is a learner. With --join and the same options it joins a running training. Settings: [model], [augment],
    [specaugment], [train], [distributed], data.cut_long.

    \b
    Example: asrtool train exp/features exp/tokenizer exp/train --config exp/config/train.toml
    """
    from asrtool.bundle.trained import refuse_trained
    from asrtool.data.manifests.sets import DEV, TRAIN, with_pieces
    from asrtool.data.remote.features import open_features
    from asrtool.recipe.source import Entry, code_of
    from asrtool.train.chain_settings import aligner_settings, begin_with_hybrid, hybrid_settings, last_settings
    from asrtool.train.inputs import ACOUSTIC
    from asrtool.train.loop.straggler import InjectionOptions
    from asrtool.train.train import start_training

    refuse_trained("train.init_model", config.train.init_model)
    if aligner:
        config = aligner_settings(config)
    elif hybrid:
        config = hybrid_settings(config)
    else:
        config = last_settings(begin_with_hybrid(config, init) if init else config)
    injection = InjectionOptions(dict(slow), compute_ms)
    code = code_of(Entry(__name__, "train"), config, ACOUSTIC)
    features = with_pieces(open_features(features, config.remote, (TRAIN, DEV)), cut, config.data)
    start_training(features, tokenizer, out, config, injection, code, join, profile, targets, events)
