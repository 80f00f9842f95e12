"""Options that many commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from asrtool.config_file import load_config

# options of a command that stand for a key
SHORT = {"strategy": "distributed.strategy", "num_learners": "distributed.num_learners"}


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--config FILE`` and ``--set section.key=value``; the command receives `config: Config`."""

    @click.option(
        "--config", "files", type=click.Path(path_type=Path), multiple=True, help="TOML settings; later files win."
    )
    @click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="One setting, as section.key=value or section.table.key=value; see asrtool config.",
    )
    @functools.wraps(command)
    def with_settings(*args: Any, files: tuple[Path, ...], overrides: tuple[str, ...], **kwargs: Any) -> Any:
        short = {key: kwargs.pop(key) for key in SHORT if key in kwargs}
        given = [f"{SHORT[key]}={value}" for key, value in short.items() if value is not None]
        return command(*args, config=load_config(files, [*overrides, *given]), **kwargs)

    return with_settings
