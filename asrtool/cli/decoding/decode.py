"""`asrtool decode`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from asrtool.cli.command import Command
from asrtool.cli.options import allow_pipes_option, executor_option, search_folders, settings_options
from asrtool.settings.config import Config
from asrtool.settings.schema import SEARCHED


@click.command(cls=Command, groups={"What a model file needs": ("tuning", *SEARCHED)})
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--tuning",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The tuning.json to decode with.  [default: that of the bundle or run]",
)
@search_folders
@executor_option
@allow_pipes_option
@settings_options
def decode(
    model: Path, data: Path, out: Path, tuning: Path | None, folders: Mapping[str, Path | None], config: Config
) -> None:
    """Recognise a test set with what was trained.

    MODEL is a bundle or the --work of a run; DATA has audio and transcripts, as a Kaldi data directory, a manifest or
    a folder of x.wav with x.txt. Writes OUT/decode/SET/METHOD.ctm and OUT/score, and prints the error
    rates. Nothing of the training is computed again.

    Or MODEL is a model file: then DATA are features, of a set or a folder of sets, all but train are decoded, and
    --tuning and the folders are needed that methods of decode.methods read. Writes OUT/SET/METHOD.ctm and
    OUT/decode.json (the decoding parameters, and real-time factors). Settings: [decode], lm.large, nnlm.enabled,
    nnlm.precision.

    \b
    Examples:
      asrtool decode swbd.asrtool data/eval exp/eval
      asrtool decode exp/average/model.pt exp/features exp/decode --tuning exp/tune/tuning.json \\
        --tokenizer exp/tokenizer --lang exp/lang --lm exp/lm --graph exp/graph --config exp/config/decode.toml
    """
    from asrtool.bundle.archive import is_archive
    from asrtool.bundle.trained import EXPECTED
    from asrtool.errors import AsrtoolError

    if not model.exists():
        raise AsrtoolError(f"{model}: no such file or folder", f"{EXPECTED}, or a model file and --tuning")
    if model.is_dir() or is_archive(model):
        _refuse_options(model)
        _decode_data(model, data, out, config.data.allow_pipes)
        return
    if tuning is None:
        raise click.UsageError("Missing option '--tuning', which a model file needs; a bundle does not.")
    from asrtool.data.remote.features import open_features
    from asrtool.decode.decode import decode_run

    decode_run(model, open_features(data, config.remote), tuning, out, folders, config)


def _refuse_options(model: Path) -> None:
    """Raise click.UsageError for an option that a bundle or a run does not take."""
    context = click.get_current_context()
    given = [
        next(option for option in parameter.opts if option.startswith("--"))
        for parameter in context.command.params
        if parameter.name not in ("model", "data", "out", "allow_pipes")
        and context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"{given[0]} is for a model file: {model} is decoded with what it holds, as it was tuned. Fewer methods:"
            f" asrtool export {model} NEW --method NAME."
        )


def _decode_data(model: Path, data: Path, out: Path, allow_pipes: bool) -> None:
    from asrtool.bundle.evaluate import evaluate
    from asrtool.bundle.trained import open_trained
    from asrtool.errors import AsrtoolError
    from asrtool.local.layouts.detect import check_apart, prepare_any
    from asrtool.local.layouts.lhotse import is_cuts
    from asrtool.local.layouts.parquet import in_columns
    from asrtool.local.layouts.rows import is_manifest
    from asrtool.local.text.references import set_name
    from asrtool.score.tables import format_table

    if not (data.is_dir() or is_manifest(data) or in_columns(data) or is_cuts(data)):
        raise AsrtoolError(
            f"{data}: no folder or manifest of a test set", "audio without transcripts: asrtool transcribe"
        )
    check_apart(data, out)
    name = set_name(data.stem if data.is_file() else data.resolve().name)

    def prepare(folder: Path, settings: Any) -> None:
        # What the model was trained with does not say that these commands may be run.
        prepare_any(data, folder, replace(settings, allow_pipes=allow_pipes), name, "test")

    with open_trained(model) as trained:
        for (of_set, method), result in evaluate(trained, name, prepare, out).items():
            click.echo(format_table(result, f"{of_set}, {method}"))
