"""Commands on recipes: run, whose stages are command lines, and config."""

from __future__ import annotations

import copy
import errno
import inspect
import logging
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asrtool.cli.command import Command
from asrtool.cli.options import (
    allow_pipes_option,
    executor_option,
    launch_option,
    recipe_options,
    short_settings,
)
from asrtool.errors import AsrtoolError
from asrtool.settings.toml_files import OVERRIDE

if TYPE_CHECKING:
    from asrtool.recipe.state import Run
    from asrtool.settings.documentation import Setting, Table

OWN_DATA = "Your own data: asrtool run --recipe own --set paths.own_train=DIR --set paths.own_test=DIR --work exp"


class WorkFolder(click.Path):
    """Folder that exists or can be made."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a file, and an empty text, which would be the current folder."""
        path = Path(value)
        if not str(value):
            raise AsrtoolError("--work is empty, expected a folder", "leave it out for the default, or give --work .")
        try:
            if not path.is_dir() and os.stat(path):
                raise NotADirectoryError(errno.ENOTDIR, "it is a file")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise AsrtoolError(f"--work {value}: no folder, {error.strerror}", "choose another place") from error
        return path


@click.command(
    cls=Command,
    groups={
        "Stages": ("work", "stage", "stop_stage", "force"),
        "Print instead of running": ("list_", "as_json", "dry_run", "check", "estimate"),
    },
)
@recipe_options
@click.option("--stage", metavar="N|NAME", help="First stage.  [default: the first of all]")
@click.option("--stop-stage", metavar="M|NAME", help="Last stage.  [default: the last of all]")
@click.option("--list", "list_", is_flag=True, help="Show the stages and their state, run nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print one JSON object instead of text.")
@click.option("--dry-run", is_flag=True, help="Show the command lines that would run, run nothing.")
@click.option(
    "--check",
    is_flag=True,
    help="Prove without data that every link of the recipe, and this command line, holds; run nothing.",
)
@click.option("--estimate", is_flag=True, help="Measure, and say what hours, disk and memory it takes; run nothing.")
@click.option("--force", is_flag=True, help="Run stages that are done as well.")
@executor_option
@launch_option
@allow_pipes_option
@click.option(
    "--work",
    type=WorkFolder(),
    help="Work folder.  [default: exp/ of the recipe; for a built-in recipe, ./exp/NAME]",
)
@click.option("--unset", metavar="KEY", multiple=True, help="Drop a --set that --work was made with.  [default: none]")
def run(
    recipe: str | None,
    configs: tuple[str, ...],
    stage: str | None,
    stop_stage: str | None,
    list_: bool,
    as_json: bool,
    dry_run: bool,
    check: bool,
    estimate: bool,
    force: bool,
    overrides: tuple[str, ...],
    executor: str | None,
    launch: str | None,
    allow_pipes: str | None,
    work: Path | None,
    unset: tuple[str, ...],
) -> None:
    """Run the stages of a recipe that are not done.

    A stage is done when its outputs are there and its command, settings, inputs and code are what they were. A
    --work that a run has made continues with its recipe and settings: --set adds to them, --unset drops one, another
    --config drops all. Another --work alone is an error.

    \b
    Examples:
      asrtool run --list
      asrtool run --recipe own --config own --config mine.toml --work exp \\
        --set paths.own_train=data/train --set paths.own_test=data/test
      asrtool run --recipe own --check
      asrtool run --stage train --dry-run
      asrtool run --work exp
    """
    from asrtool.data.manifests.manifest import audio_files_below
    from asrtool.recipe.check import check_recipe
    from asrtool.recipe.plan import choose_stages, format_commands, format_states
    from asrtool.recipe.recipe import find_recipe, load_recipe, load_settings
    from asrtool.recipe.request import Request, continue_work
    from asrtool.recipe.state import Run

    if as_json and not list_:
        raise click.UsageError("--json is for --list.")
    requested = Request(recipe, configs, [*overrides, *short_settings({"allow_pipes": allow_pipes})])
    begins = not work or list_ or dry_run or check or estimate or stop_stage is not None
    work = (work or load_recipe(find_recipe(recipe)).default_work).resolve()
    request = continue_work(work, requested, unset)
    loaded = load_recipe(find_recipe(request.recipe))
    if request == requested == Request(None, (), []) and loaded.folder != Path.cwd():
        if not begins:
            raise AsrtoolError(f"{work}: no run is there", "name that of a run, or --recipe NAME to begin one")
        logging.info("no recipe is named: %s. %s", loaded.name, OWN_DATA)
    checked = check_recipe(loaded, find_entry) if check else ""
    chosen_places = short_settings({"executor": executor, "launch": launch})
    settings = load_settings(loaded, request.configs, [*request.overrides, *chosen_places])
    chosen = choose_stages(loaded.stages, stage, stop_stage)
    if check:
        click.echo(checked)
        return
    this_run = Run(loaded, settings, work, find_entry, audio_files_below, request)
    if list_:
        click.echo(format_states(this_run, chosen, as_json))
    elif estimate:
        from asrtool.local.sets.hours import data_amount
        from asrtool.predict.estimate.needs import format_estimate

        click.echo(format_estimate(this_run, data_amount(this_run.config, this_run.work)))
    elif dry_run:
        click.echo(format_commands(this_run, chosen, force))
    else:
        click.echo(_run(this_run, chosen, force))


def _run(this_run: Run, chosen: range, force: bool) -> str:
    """Run the chosen stages; return the outcome."""
    from asrtool.bundle.archive import refuse_trained
    from asrtool.recipe.engine import run_stages  # not needed, and half the time, for --list
    from asrtool.recipe.plan import format_outcome

    refuse_trained("train.init_model", this_run.config.train.init_model)
    return format_outcome(this_run, chosen, run_stages(this_run, chosen, force))


@click.command(cls=Command)
@recipe_options
@click.option(
    "--try",
    "tries",
    metavar="'KEY=VALUE ...'",
    multiple=True,
    required=True,
    help="Settings of a system, on top of --config and --set.",
)
@click.option(
    "--folds",
    metavar="N",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Number of parts of the training set.",
)
@click.option("--work", type=WorkFolder(), required=True, help="Folder with a work folder for each system and fold.")
def sweep(
    recipe: str | None,
    configs: tuple[str, ...],
    overrides: tuple[str, ...],
    tries: tuple[str, ...],
    folds: int,
    work: Path,
) -> None:
    """Compare settings by cross-validation over folds of speakers.

    The recipe as it is, A, and each --try are trained without a part of the training set (data.dev_minutes,
    data.dev_fold) and scored on it, for each of the N parts. No test set is read. Prints the pooled error rates, and
    tests whether a --try differs from A by more than chance. Continues if it is called again.

    \b
    Examples:
      asrtool sweep --recipe own --config own --config mine.toml --work exp/sweep --folds 1 --try train.peak_lr=0.01 \\
        --set paths.own_train=data/train
    """
    from asrtool.data.manifests.manifest import audio_files_below
    from asrtool.recipe.engine import run_stages
    from asrtool.recipe.plan import choose_stages
    from asrtool.recipe.recipe import find_recipe, load_recipe, load_settings
    from asrtool.recipe.request import Request
    from asrtool.recipe.state import Run
    from asrtool.report.side_by_side import format_sweep

    loaded = load_recipe(find_recipe(recipe))
    tried = [word for text in tries for word in ("--try", text)]
    words = ["asrtool", "sweep", *Request(recipe, configs, overrides).argv(), *tried]
    again = shlex.join([*words, "--folds", str(folds), "--work", str(work)])
    runs: dict[str, list[Run]] = {}
    for text in ("", *tries):
        name = re.sub(r"[^\w.=,+-]+", "_", text) or "A"
        if name in runs:
            raise click.UsageError(f"--try {text!r} is given twice.")
        runs[name] = []
        for fold in range(folds):
            own = re.split(r"\s+(?=[\w.]+=)", text.strip()) if text else []
            request = Request(recipe, configs, [*overrides, *own, "data.test=[]", f"data.dev_fold={fold}"])
            settings = load_settings(loaded, request.configs, request.overrides)
            folder = work.resolve() / name / f"fold{fold}"
            runs[name].append(Run(loaded, settings, folder, find_entry, audio_files_below, request, again))
    # Folds that cannot be made are reported before hours of training.
    for last in ("prepare", "score"):
        for fold in range(folds):
            for name, of_folds in runs.items():
                logging.info("%s, fold %d, to stage %s", name, fold, last)
                run_stages(of_folds[fold], choose_stages(loaded.stages, None, last))
    click.echo(format_sweep({name: [run.work for run in of_folds] for name, of_folds in runs.items()}))


def find_entry(argv: Sequence[str]) -> str:
    """Return ``module:function`` of the command line `argv`; files need not exist.

    Raises AsrtoolError for an unknown command or option, or wrong arguments.
    """
    from asrtool.cli.main import cli

    line = " ".join(argv)
    if argv[0] != "asrtool":
        raise AsrtoolError(
            f"{line}: a stage calls asrtool only", "call your own command as: asrtool package.module:command"
        )
    try:
        command, arguments = _find_command(cli, list(argv[1:]))
        _without_data(command).make_context(str(command.name), arguments)
    except click.ClickException as error:
        raise AsrtoolError(f"{line}: {error.format_message()}", "see asrtool --help") from error
    except (ImportError, AttributeError) as error:
        raise AsrtoolError(f"{line}: the command cannot be loaded: {error}", "fix its module") from error
    function = inspect.unwrap(command.callback) if command.callback else None
    assert function is not None, f"{line}: a command without a function"
    return f"{function.__module__}:{function.__name__}"


def _find_command(command: click.Command, arguments: list[str]) -> tuple[click.Command, list[str]]:
    while isinstance(command, click.Group):
        if not arguments:
            raise click.UsageError("Missing command.")
        context = click.Context(command, info_name=command.name)
        _, found, arguments = command.resolve_command(context, arguments)
        assert found is not None, arguments
        command = found
    return command, arguments


def _without_data(command: click.Command) -> click.Command:
    """Return `command` with paths that may be missing."""
    relaxed = copy.copy(command)
    relaxed.params = [copy.copy(parameter) for parameter in command.params]
    for parameter in relaxed.params:
        if isinstance(parameter.type, click.Path):
            parameter.type = path = copy.copy(parameter.type)
            path.exists = False
    return relaxed


@click.command(cls=Command)
@click.argument("key", default="")
@recipe_options
def config(key: str, recipe: str | None, configs: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Print the settings of a recipe: value, where it comes from, unit and meaning.

    KEY is a section (train), a key (train.optimizer, with all that it can choose) or a table (train.adamw). What is
    printed is a configuration file.

    \b
    Examples:
      asrtool config
      asrtool config train.optimizer
      asrtool config decode --recipe own --set decode.methods=greedy,graph
    """
    from asrtool.recipe.recipe import build_settings, find_recipe, load_recipe, read_settings
    from asrtool.settings.documentation import describe

    given = read_settings(load_recipe(find_recipe(recipe)), configs, overrides)
    click.echo("\n\n".join(map(_format_table, describe(build_settings(given), given, key))))


def _format_table(table: Table) -> str:
    from asrtool.settings.values import format_key, format_value

    values = [f"{format_key(setting.name)} = {format_value(setting.value)}" for setting in table.settings]
    origins = [_origin(setting) for setting in table.settings]
    rows = zip(_aligned(values), _aligned(origins), table.settings, strict=True)
    lines = [f"{value}  # {origin}  {setting.meaning}".rstrip() for value, origin, setting in rows]
    return "\n".join([f"[{table.name}]  # {table.about}".rstrip(" #"), *lines])


def _aligned(texts: Sequence[str]) -> list[str]:
    """Pad texts to the same width, except long ones."""
    width = max((len(text) for text in texts if len(text) <= 40), default=0)
    return [text.ljust(width) for text in texts]


def _origin(setting: Setting) -> str:
    """Return a file by its shortest path, an override by its option."""
    if not Path(setting.origin).is_absolute():
        return OVERRIDE.strip() if setting.origin.startswith(OVERRIDE) else setting.origin
    return min(setting.origin, os.path.relpath(setting.origin), key=len)
