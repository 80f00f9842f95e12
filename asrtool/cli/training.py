"""Commands that train: train, finetune, targets, average, nnlm."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import click

from asrtool.cli.command import Command
from asrtool.cli.options import (
    CLUSTER,
    LEARNERS,
    MODEL_FILE,
    PATH,
    TOKENIZER,
    TRAINED,
    cut_option,
    extra_option,
    launch_options,
    learners_options,
    settings_options,
    slow_option,
    targets_option,
)
from asrtool.settings.config import Config
from asrtool.settings.values import flatten, format_value

MAX_MS = 3_600_000


@click.command(
    cls=Command,
    groups={
        "Outputs of other stages": ("targets", "cut", "init", "aligner", "hybrid"),
        "Several learners": (*LEARNERS, "join"),
        "On a cluster": CLUSTER,
        "Speed": ("profile", "events", "compute_ms", "slow"),
    },
)
@click.argument("features", type=PATH)
@click.argument("tokenizer", type=PATH)
@click.argument("out", type=PATH)
@learners_options
@slow_option("Straggler injection: stretch the compute of a learner.")
@click.option(
    "--compute-ms",
    type=click.FloatRange(0, MAX_MS),
    metavar="X",
    help="Emulated compute: wait X milliseconds a step instead.  [default: none]",
)
@click.option("--profile", is_flag=True, help="Write a profile of ten steps to OUT/profile.")
@click.option(
    "--events", is_flag=True, help="Write to OUT/events in which order weights change: asrtool simulate --replay."
)
@targets_option
@click.option("--aligner", is_flag=True, help="Train what aligns, as model.frame-ce.aligner.")
@click.option("--hybrid", is_flag=True, help="Train the hybrid model of frame-ce that lf-mmi begins with.")
@click.option(
    "--init",
    type=PATH,
    metavar="FILE",
    help="That model, unless train.init_model names one.  [default: none]",
)
@cut_option
@click.option("--join", is_flag=True, help="Join the training that runs in OUT as an extra learner.")
@settings_options
@launch_options
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
    from asrtool.bundle.archive import refuse_trained
    from asrtool.data.manifests.sets import DEV, TRAIN, training_features
    from asrtool.data.remote.features import open_features
    from asrtool.recipe.source import code_of
    from asrtool.train.derived_settings import aligner_settings, hybrid_settings, init_from_hybrid, last_settings
    from asrtool.train.inputs import ACOUSTIC
    from asrtool.train.loop.straggler import InjectionOptions
    from asrtool.train.run import join as join_training
    from asrtool.train.run import start
    from asrtool.train.train import acoustic_job

    refuse_trained("train.init_model", config.train.init_model)
    if aligner:
        config = aligner_settings(config)
    elif hybrid:
        config = hybrid_settings(config)
    else:
        config = last_settings(init_from_hybrid(config, init) if init else config)
    injection = InjectionOptions(dict(slow), compute_ms)
    code = code_of(f"{__name__}:train", config, ACOUSTIC)
    features = training_features(open_features(features, config.remote, (TRAIN, DEV)), cut, config.data)
    job = acoustic_job(features, tokenizer, out, config, injection, code, targets)
    job = dataclasses.replace(job, profiles=profile, logs_events=events)
    join_training(job) if join else start(job)


def _finetune_settings(arguments: dict[str, Any]) -> list[str]:
    """Return the settings of the model, and those the options stand for.

    A bundle is unpacked to OUT.start, where the same command finds the same model when it resumes.
    """
    from asrtool.bundle.trained import AVERAGE, part_of
    from asrtool.files import write_folder
    from asrtool.models.files.file_info import read_info

    for name, part in (("model", AVERAGE), ("tokenizer", "tokenizer")):
        place = arguments["out"].with_name(f"{arguments['out'].name}.start") / part
        arguments[name] = part_of(arguments[name], part, functools.partial(write_folder, place, "*"), place)
    settings = flatten({"model": read_info(arguments["model"])["model"]})
    frozen = arguments.pop("freeze")
    settings |= {"train.init_model": str(arguments["model"])} | ({"train.frozen": frozen} if frozen else {})
    return [f"{key}={format_value(value)}" for key, value in settings.items()]


@click.command(
    cls=Command, groups={"Training": ("freeze", "targets"), "Several learners": LEARNERS, "On a cluster": CLUSTER}
)
@click.argument("model", type=TRAINED)
@click.argument("features", type=PATH)
@click.argument("tokenizer", type=PATH)
@click.argument("out", type=PATH)
@click.option(
    "--freeze",
    multiple=True,
    metavar="NAME",
    help="Parameters that stay as they are, with * for any part.  [default: none]",
)
@targets_option
@learners_options
@functools.partial(settings_options, between=_finetune_settings)
@launch_options
def finetune(model: Path, features: Path, tokenizer: Path, out: Path, targets: Path | None, config: Config) -> None:
    """Fine-tune MODEL on other FEATURES or with another TOKENIZER.

    MODEL and TOKENIZER may each be a bundle or the --work of a run, which has them. As `asrtool train`, but with the
    [model] settings of MODEL, whatever configuration files say; --set changes them. With another tokenizer or
    objective, the output layers begin anew. Settings: [augment], [specaugment], [train], [distributed].

    \b
    Example: asrtool finetune exp/average/model.pt own/features exp/tokenizer own/train \\
      --config exp/config/train.toml --set train.peak_lr=0.0005
    """
    from asrtool.data.manifests.sets import DEV, TRAIN
    from asrtool.data.remote.features import open_features
    from asrtool.recipe.source import code_of
    from asrtool.train.inputs import ACOUSTIC
    from asrtool.train.run import start
    from asrtool.train.train import acoustic_job

    code = code_of(f"{__name__}:finetune", config, ACOUSTIC)
    features = open_features(features, config.remote, (TRAIN, DEV))
    start(acoustic_job(features, tokenizer, out, config, code=code, targets=targets))


@click.command(cls=Command)
@click.argument("model", type=MODEL_FILE)
@click.argument("features", type=PATH)
@click.argument("tokenizer", type=TOKENIZER)
@click.argument("out", type=PATH)
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
    from asrtool.data.manifests.sets import DEV, TRAIN, training_features
    from asrtool.data.remote.features import open_features
    from asrtool.decode.align.frame_targets import targets_run

    features = open_features(features, config.remote, (TRAIN, DEV))
    targets_run(model, training_features(features, cut, config.data), tokenizer, out, config.decode, config.tree)


@click.command(cls=Command)
@click.argument("train_dir", metavar="TRAIN", type=PATH)
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@settings_options
def average(train_dir: Path, out: Path, config: Config) -> None:
    """Average checkpoints of TRAIN into one model file OUT. Settings: [average].

    \b
    Example: asrtool average exp/train exp/average/model.pt --set average.num=1
    """
    from asrtool.files import writing
    from asrtool.train.average import average_checkpoints

    with writing(out):
        average_checkpoints(train_dir, out, config.average.by, config.average.num)


@click.command(cls=Command, groups={"On a cluster": CLUSTER})
@click.argument("text", type=PATH)
@click.argument("dev_text", type=PATH)
@click.argument("words", type=PATH)
@click.argument("out", type=PATH)
@extra_option("texts")
@settings_options
@launch_options
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
    from asrtool.recipe.source import code_of
    from asrtool.train.inputs import NEURAL_LM
    from asrtool.train.nnlm import start_neural_lm

    code = code_of(f"{__name__}:nnlm", config, NEURAL_LM)
    further = extra_files(extra, config.lm.extra_text) if extra else []
    start_neural_lm(text, dev_text, words, out, config, code, further)
