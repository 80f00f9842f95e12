"""`asrtool finetune`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click

from asrtool.cli.command import Command
from asrtool.cli.options import LEARNERS, learners_options, settings_options, targets_option
from asrtool.settings.config import Config
from asrtool.settings.values import flatten, format_value


def _of_model(arguments: dict[str, Any]) -> list[str]:
    """The settings that the model brings, and what the options stand for.

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


@click.command(cls=Command, groups={"Training": ("freeze", "targets"), "Several learners": LEARNERS})
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("features", type=click.Path(path_type=Path))
@click.argument("tokenizer", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--freeze",
    multiple=True,
    metavar="NAME",
    help="Parameters that stay as they are, with * for any part.  [default: none]",
)
@targets_option
@learners_options
@functools.partial(settings_options, between=_of_model)
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
    from asrtool.recipe.source import Entry, code_of
    from asrtool.train.inputs import ACOUSTIC
    from asrtool.train.loop.straggler import InjectionOptions
    from asrtool.train.train import start_training

    code = code_of(Entry(__name__, "finetune"), config, ACOUSTIC)
    features = open_features(features, config.remote, (TRAIN, DEV))
    start_training(features, tokenizer, out, config, InjectionOptions(), code, targets=targets)
