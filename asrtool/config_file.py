"""Settings from TOML files and ``section.key=value`` overrides, and back to TOML."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from asrtool.config import Config
from asrtool.config_value import format_value, merge, parse_override, read_toml
from asrtool.errors import AsrtoolError

SECTIONS: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(Config))


def load_config(files: Iterable[Path | str] = (), overrides: Iterable[str] = ()) -> Config:
    """Read TOML `files` in order, then apply `overrides` (``section.key=value``); later ones win.

    Raises AsrtoolError for a missing file, broken TOML, an unknown key (naming the nearest) or a wrong type or value.
    """
    kinds = {section: typing.get_type_hints(kind) for section, kind in typing.get_type_hints(Config).items()}
    table: dict[str, dict[str, Any]] = {}
    for file in files:
        merge(table, read_toml(Path(file)), kinds, str(file))
    for override in overrides:
        merge(table, parse_override(override), kinds, f"--set {override}")
    return _build(table)


def select(config: Config, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Section -> key -> value of what `names` name: whole sections (``data``) or single keys (``data.train``)."""
    table: dict[str, dict[str, Any]] = {}
    for name in names:
        section, _, key = name.partition(".")
        values = dataclasses.asdict(getattr(config, section))
        table.setdefault(section, {}).update({key: values[key]} if key else values)
    return table


def format_toml(config: Config, names: Iterable[str] = SECTIONS) -> str:
    """The named sections and keys as TOML text that load_config reads back to the same values."""
    lines = []
    for section, values in select(config, names).items():
        lines += [f"[{section}]", *(f"{key} = {format_value(value)}" for key, value in values.items()), ""]
    return "\n".join(lines)


def _build(table: Mapping[str, Mapping[str, Any]]) -> Config:
    hints = typing.get_type_hints(Config)
    try:
        return Config(**{name: hints[name](**values) for name, values in table.items()})
    except ValueError as error:
        raise AsrtoolError(str(error), "mend the value in the configuration file or in --set") from error
