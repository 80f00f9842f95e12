"""Options that many commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from asrtool.config_file import load_config


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--config FILE`` and ``--set section.key=value``; the command receives `config: Config`."""

    @click.option(
        "--config", "files", type=click.Path(path_type=Path), multiple=True, help="TOML settings; later files win."
    )
    @click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, as section.key=value.")
    @functools.wraps(command)
    def with_settings(*args: Any, files: tuple[Path, ...], overrides: tuple[str, ...], **kwargs: Any) -> Any:
        return command(*args, config=load_config(files, overrides), **kwargs)

    return with_settings
