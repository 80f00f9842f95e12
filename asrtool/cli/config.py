"""`asrtool config`: the settings of a recipe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from asrtool.cli.command import Command
from asrtool.cli.options import recipe_options
from asrtool.settings.toml_files import OVERRIDE

if TYPE_CHECKING:
    from asrtool.settings.documentation import Setting, Table


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
    """Padded to the same width, but for long ones."""
    width = max((len(text) for text in texts if len(text) <= 40), default=0)
    return [text.ljust(width) for text in texts]


def _origin(setting: Setting) -> str:
    """A file by its shortest path, an override by its option alone."""
    if not Path(setting.origin).is_absolute():
        return OVERRIDE.strip() if setting.origin.startswith(OVERRIDE) else setting.origin
    return min(setting.origin, os.path.relpath(setting.origin), key=len)
