"""Describe settings: values, origins, and meanings (the comments of fields).

Loads no torch: of built-in components only the sources are read.
"""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.config import SECTIONS, Config, to_table
from asrtool.settings.schema import Choice, kinds_of
from asrtool.settings.toml_files import CLASSES, Given, build_component, known_keys, known_paths
from asrtool.settings.values import format_key, nearest, other_name

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = "default"
PATHS = "Where releases lie; empty where a site does not have one."


@dataclass(frozen=True)
class Setting:
    """One key."""

    name: str
    value: Any
    origin: str  # default, a file, or an override
    meaning: str


@dataclass(frozen=True)
class Table:
    """One table of a TOML file: a section, or the settings of a component."""

    name: str
    about: str
    settings: list[Setting]


def describe(config: Config, given: Given, name: str = "") -> list[Table]:
    """Return the tables that `name` selects, with the values of `config`.

    An empty name selects all; a section itself and the tables of its chosen components; a key itself and the tables
    of all components it can choose; a component's table, or a key in it, that one. Raises AsrtoolError for an unknown
    name.
    """
    section, _, key = name.partition(".")
    if not key and section in ("", *SECTIONS):
        return [table for each in ([section] if section else SECTIONS) for table in _section(config, given, each)]
    found = list(_named(config, given, section, key)) if section in SECTIONS else []
    if not found:
        keys = [*known_keys(), *(f"paths.{path}" for path in known_paths(config.data))]
        known = dict.fromkeys([*(key.rpartition(".")[0] for key in keys), *keys])
        hint = other_name(name) or nearest(name, known) or f"the sections are {', '.join(SECTIONS)}"
        hint += "; the table of a custom component needs --set or --config that chooses it" if _kinds(section) else ""
        raise AsrtoolError(f"{name}: no such section or setting", hint)
    return found


def _named(config: Config, given: Given, section: str, key: str) -> Iterator[Table]:
    """Yield the tables that ``section.key`` selects."""
    kinds, (whole, *_) = _kinds(section), _section(config, given, section)
    if key in {setting.name for setting in whole.settings}:
        yield _only(whole, key)
        yield from (_component(section, choice, given) for choice in _all(config, given, section, key, kinds))
        return
    wanted, _, inner = key.partition(".")
    choices = {choice.table: choice for field in kinds for choice in _all(config, given, section, field, kinds)}
    if wanted in choices:
        table = _component(section, choices[wanted], given)
        if not inner:
            yield table
        elif (only := _only(table, inner)).settings:
            yield only


def _only(table: Table, key: str) -> Table:
    return replace(table, settings=[setting for setting in table.settings if setting.name == key])


def _section(config: Config, given: Given, name: str) -> Iterator[Table]:
    """Yield the section `name`, then each component that it chooses."""
    if name == "paths":
        keys = known_paths(config.data)
        rows = [Setting(key, config.paths.get(key, ""), _origin(given, name, key), keys[key]) for key in keys]
        yield Table(name, PATHS, rows)
        return
    section = getattr(config, name)
    yield Table(name, _first_line(type(section).__doc__), _settings(section, given, name))
    chosen = {choice.table: choice for key in _kinds(name) for choice in _as_list(getattr(section, key))}
    yield from (table for choice in chosen.values() if (table := _component(name, choice, given)).settings)


def _component(section: str, choice: Choice, given: Given) -> Table:
    rows = _settings(choice.settings, given, section, choice.table)
    return Table(f"{section}.{format_key(choice.table)}", _about(choice), rows)


def _settings(settings: Any, given: Given, *key: str) -> list[Setting]:
    values, comments = to_table(settings), meanings(type(settings))
    names = [field.name for field in fields(settings)]
    return [Setting(name, values[name], _origin(given, *key, name), comments[name]) for name in names]


def _all(config: Config, given: Given, section: str, key: str, kinds: Mapping[str, str]) -> list[Choice]:
    """Return all components that a key can choose, custom ones first."""
    if key not in kinds:
        return []
    own = [choice for choice in _as_list(getattr(getattr(config, section), key)) if ":" in choice.name]
    return own + [build_component((section, key), name, given) for name in registry.names(kinds[key])]


def _kinds(section: str) -> dict[str, str]:
    return kinds_of(CLASSES[section]) if section in CLASSES else {}


def _as_list(value: Choice | tuple[Choice, ...]) -> tuple[Choice, ...]:
    return value if isinstance(value, tuple) else (value,)


def _origin(given: Given, *key: str) -> str:
    return given.origins.get(key, DEFAULT)


def meanings(settings: type) -> dict[str, str]:
    """Return field -> its comment, of a dataclass and its bases."""
    comments: dict[str, str] = {}
    for base in reversed([base for base in settings.__mro__ if is_dataclass(base)]):
        comments |= _comments(textwrap.dedent(inspect.getsource(base)))
    return {field.name: comments.get(field.name, "") for field in fields(cast("Any", settings))}


def _comments(source: str) -> dict[str, str]:
    """Return field -> its comment, of the class in `source`."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    by_line = {token.end[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.AnnAssign)]
    return {
        node.target.id: by_line.get(node.end_lineno or 0, "") for node in found if isinstance(node.target, ast.Name)
    }


def _about(choice: Choice) -> str:
    """Return the first line about a component's settings, itself, or its module."""
    if ":" in choice.name:
        return _first_line(inspect.getdoc(choice.load()))
    module, _, attribute = registry.path_of(choice.kind, choice.name).partition(":")
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_bytes())
    parts = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute]
    found = [ast.get_docstring(part) for part in (*parts, tree)]
    if registry.settings_class(choice.kind, choice.name) is not registry.NoSettings:
        found.insert(0, type(choice.settings).__doc__)
    return next((_first_line(text) for text in found if text), "")


def _first_line(docstring: str | None) -> str:
    return (docstring or "").strip().partition("\n")[0]
