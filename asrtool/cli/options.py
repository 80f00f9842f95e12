"""Options that many commands share."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asrtool.errors import AsrtoolError

if TYPE_CHECKING:
    from asrtool.settings.config import Config


def recipe_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--recipe``, ``--config NAME`` and ``--set``.

    The command receives `recipe`, `configs` and `overrides`.
    """
    recipe = click.option("--recipe", metavar="DIR|NAME", help="Recipe folder.  [default: the current one, else swbd]")
    configs = click.option(
        "--config",
        "configs",
        metavar="NAME|FILE",
        multiple=True,
        help="Settings: a name in the recipe's conf/, or a TOML file; later ones win.  [default: the recipe's]",
    )
    overrides = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="One setting, as section.key=value.  [default: none]",
    )
    return recipe(configs(overrides(command)))


# options that are short forms of keys
SHORT = {
    "strategy": ("distributed.strategy",),
    "num_learners": ("distributed.num_learners",),
    "launch": ("launch.place",),
    "executor": ("features.executor", "decode.executor"),
    "allow_pipes": ("data.allow_pipes",),
}

LEARNERS = ("strategy", "num_learners")
CLUSTER = ("launch", "dry_run")
MAX_FACTOR = 10_000  # of a straggler


class PartOfTrained(click.ParamType):
    """Path of a part, or of a work folder or bundle that has it; or of any of these.

    A bundle is unpacked to a temporary folder while the command runs, fetched first if it is an address or a name.
    """

    name = "path"

    def __init__(self, part: str = "") -> None:
        self.part = part

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path of the part."""
        from asrtool.bundle.archive import find_trained, is_archive

        path = place = find_trained(Path(value))
        if not self.part:
            return path
        if is_archive(path):
            import tempfile

            assert ctx is not None
            place = Path(ctx.with_resource(tempfile.TemporaryDirectory(prefix="asrtool-")))
        elif not path.is_dir():
            return path
        from asrtool.bundle.trained import part_of

        return part_of(path, self.part, lambda: contextlib.nullcontext(place), place)


PATH = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)
EXISTING_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)
MODEL_FILE, TOKENIZER, TRAINED = PartOfTrained("average"), PartOfTrained("tokenizer"), PartOfTrained()


def folder_option(name: str, what: str, metavar: str = "FOLDER") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option for a folder that another command wrote."""
    return click.option(f"--{name}", type=PATH, metavar=metavar, help=f"{what}  [default: none]")


def extra_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--extra``, a folder of more `what`: texts or words."""
    return folder_option("extra", f"Output of `asrtool prepare text`: more {what}.")


targets_option = folder_option("targets", "Output of `asrtool targets`, for frame-ce.", "DIR")
cut_option = folder_option("cut", "Output of `asrtool cut`, for data.cut_long.", "DIR")
executor_option = click.option(
    "--executor",
    metavar="local|dask:ADDRESS",
    help="features.executor, decode.executor: processes here, or workers of Dask.  [default: those settings]",
)


def learners_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of LEARNERS, which are short forms of settings."""
    strategy = click.option(
        "--strategy",
        metavar="NAME",
        help="distributed.strategy: how learners combine gradients and weights.  [default: that setting]",
    )
    num_learners = click.option(
        "--num-learners",
        type=click.IntRange(1),
        metavar="N",
        help="distributed.num_learners: processes started here.  [default: that setting]",
    )
    return strategy(num_learners(command))


launch_option = click.option(
    "--launch",
    metavar="local|slurm|kubernetes",
    help="launch.place: train and compute here, or by jobs of a cluster.  [default: that setting]",
)


def launch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--launch`` and ``--dry-run`` to a command that trains in `out`.

    The command runs if no other place trains.
    """

    @functools.wraps(command)
    def submit_or_run(*args: Any, config: Config, dry_run: bool, **kwargs: Any) -> Any:
        from asrtool.jobs.job import submit_and_follow
        from asrtool.settings.config import check_parts

        check_parts([config.distributed], config)
        if not submit_and_follow(config, kwargs["out"], dry_run):
            return command(*args, config=config, **kwargs)
        return None

    dry_run = click.option("--dry-run", is_flag=True, help="Print the job that --launch would submit, submit nothing.")
    return launch_option(dry_run(submit_or_run))


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--executor`` and ``--launch``.

    The command receives a `config` with the workers of that place.
    """

    @functools.wraps(command)
    def with_executor(*args: Any, config: Config, **kwargs: Any) -> Any:
        from asrtool.jobs.workers import with_workers

        with with_workers(config, kwargs.get("out") or kwargs["manifests"]) as config:
            return command(*args, config=config, **kwargs)

    return executor_option(launch_option(with_executor))


def slow_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--slow`` for `what`; the command receives `slow`: (rank, factor) pairs."""
    return click.option(
        "--slow",
        multiple=True,
        metavar="RANK:FACTOR",
        callback=lambda _, __, texts: tuple(map(_slowness, texts)),
        help=f"{what}  [default: none]",
    )


def _slowness(text: str) -> tuple[int, float]:
    rank, _, factor = text.partition(":")
    with contextlib.suppress(ValueError):
        if int(rank) >= 0 and 1 <= float(factor) <= MAX_FACTOR:
            return int(rank), float(factor)
    raise AsrtoolError(
        f"--slow {text}: expected RANK:FACTOR with a factor from 1 to {MAX_FACTOR:,}",
        "for example --slow 0:10, learner 0 ten times slower",
    )


allow_pipes_option = click.option(
    "--allow-pipes", flag_value="true", help="Have a shell run commands of a wav.scp that need one (data.allow_pipes)."
)


def short_settings(arguments: dict[str, Any]) -> list[str]:
    """Take the options of SHORT out of `arguments`; return them as KEY=VALUE."""
    values = {name: arguments.pop(name) for name in SHORT if name in arguments}
    return [f"{key}={value}" for name, value in values.items() if value is not None for key in SHORT[name]]


def settings_options(
    command: Callable[..., Any], between: Callable[[dict[str, Any]], list[str]] = lambda _: []
) -> Callable[..., Any]:
    """Add ``--config FILE`` and ``--set section.key=value``.

    The command receives `config: Config`. `between` returns overrides from the command's arguments, which win over
    files and lose to ``--set``.
    """

    @click.option(
        "--config",
        "files",
        type=PATH,
        multiple=True,
        help="TOML settings; later files win.  [default: none]",
    )
    @click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="One setting, as section.key=value or section.table.key=value; see asrtool config.  [default: none]",
    )
    @functools.wraps(command)
    def with_settings(*args: Any, files: tuple[Path, ...], overrides: tuple[str, ...], **kwargs: Any) -> Any:
        from asrtool.settings.toml_files import load_config

        given = short_settings(kwargs)
        return command(*args, config=load_config(files, [*between(kwargs), *overrides, *given]), **kwargs)

    return with_settings


def search_folders(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--tokenizer`` and other folders of search methods.

    The command receives `folders`, by name.
    """
    from asrtool.settings.schema import SEARCHED

    @functools.wraps(command)
    def with_folders(*args: Any, **kwargs: Any) -> Any:
        return command(*args, folders={name: kwargs.pop(name) for name in SEARCHED}, **kwargs)

    options = [folder_option(name, f"Output of `asrtool {name}`.") for name in SEARCHED]
    return functools.reduce(lambda made, option: option(made), reversed(options), with_folders)
