"""Settings from TOML files and ``section.key=value`` overrides, with the origin of each, and back to TOML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from asrtool.config import SECTIONS, Config, select
from asrtool.config_section import CLASSES, Given, build_section
from asrtool.config_value import convert, format_value, nearest, parse_override, read_toml
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError

OVERRIDE = "--set "  # what the origin of an override begins with


def load_config(files: Iterable[Path | str] = (), overrides: Iterable[str] = ()) -> Config:
    """Read TOML `files` in order, then apply `overrides` (``section.key=value``); later ones win.

    A table of a component that is not chosen is checked and has no effect, so that one file can be laid over another.
    Raises AsrtoolError for a missing file, broken TOML, an unknown key (naming the nearest) or a wrong type or value.
    """
    return build(read_given(files, overrides))


def read_given(files: Iterable[Path | str], overrides: Iterable[str]) -> Given:
    """What `files` and `overrides` say, in this order. Raises AsrtoolError for what cannot be read."""
    given = Given()
    for file in files:
        for section, values in read_toml(Path(file)).items():
            if section in SECTIONS and not isinstance(values, Mapping):
                what = f"{file}: {section} is a value, expected a table"
                raise AsrtoolError(what, f"write [{section}] above its keys")
            for key, value in values.items() if isinstance(values, Mapping) else [("", values)]:
                pairs = value.items() if isinstance(value, Mapping) else [("", value)]
                for inner, item in pairs:
                    given.add(tuple(part for part in (section, key, inner) if part), item, str(file))
    for override in overrides:
        given.add(*parse_override(override), f"{OVERRIDE}{override}")
    return given


def build(given: Given) -> Config:
    """The settings that `given` stands for; raises AsrtoolError as load_config does."""
    for key in given.values:
        if key[0] not in SECTIONS:
            raise AsrtoolError(f"{given.origins[key]}: unknown section {key[0]!r}", nearest(key[0], SECTIONS))
    try:
        sections = {name: build_section(name, given) for name in CLASSES}
        return Config(paths=_paths(given, sections["data"]), **sections)
    except ValueError as error:
        raise AsrtoolError(str(error), "correct the value in the configuration file or in --set") from error


def load_section(name: str, table: Mapping[str, Any], origin: str) -> Any:
    """The section `name` of a table that `to_table` made, as `origin` holds it; a missing key is its default.

    Raises AsrtoolError for a key or a value that this version does not know.
    """
    given = Given()
    for key, value in table.items():
        for inner, item in value.items() if isinstance(value, Mapping) else [("", value)]:
            path = tuple(part for part in (name, key, inner) if part)
            given.add(path, list(item) if isinstance(item, tuple) else item, origin)
    try:
        return build_section(name, given)
    except ValueError as error:
        raise AsrtoolError(f"{origin}: {error}", "make the file again") from error


def known_paths(data: Data) -> dict[str, str]:
    """Key in [paths] -> title, of the releases of corpora that come with the toolkit or that `data` names."""
    from local.named import known_releases

    return {key: release.title for key, release in known_releases(data).items()}


def used_paths(data: Data) -> list[str]:
    """The keys in [paths] of what the corpora of `data` are read from; AsrtoolError for a role that one lacks."""
    from local.named import named_corpora

    return [release.key for item in named_corpora(data) for release in item.releases]


def _paths(given: Given, data: Data) -> dict[str, str]:
    """Where corpora lie, by the keys of their releases."""
    keys = [key for key in given.values if key[0] == "paths"]
    known = known_paths(data) if keys else {}
    for key in keys:
        if len(key) != 2 or key[1] not in known:
            raise AsrtoolError(f"{given.origins[key]}: unknown key {'.'.join(key)}", nearest(key[-1], known))
    return {key[1]: convert(given.values[key], str, f"{given.origins[key]}: {'.'.join(key)}") for key in keys}


def format_toml(config: Config, names: Iterable[str] = SECTIONS) -> str:
    """The named sections and keys as TOML text that load_config reads back to the same values."""
    lines: list[str] = []
    for section, table in select(config, names).items():
        lines += [f"[{section}]", *_lines(table), ""]
        for name, inner in table.items():
            if isinstance(inner, Mapping):
                lines += [f"[{section}.{format_key(name)}]", *_lines(inner), ""]
    return "\n".join(lines)


def format_key(name: str) -> str:
    """A key as TOML wants it: quoted where it is more than letters, digits, hyphens and underscores."""
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else format_value(name)


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {format_value(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
