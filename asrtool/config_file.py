"""Settings from TOML files and ``section.key=value`` overrides, with the origin of each, and back to TOML."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asrtool import registry
from asrtool.config import SECTIONS, Config, select
from asrtool.config_value import convert, format_value, nearest, parse_override, read_toml
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from asrtool.settings import Choice

CLASSES: dict[str, Any] = {name: kind for name, kind in typing.get_type_hints(Config).items() if name != "paths"}
Key = tuple[str, ...]  # section and key, or section, table and key


@dataclass
class Given:
    """What files and overrides say: values as they stand there, with the file or override of each; later ones win."""

    values: dict[Key, Any] = field(default_factory=dict)
    origins: dict[Key, str] = field(default_factory=dict)
    named: dict[str, set[str]] = field(default_factory=dict)  # section -> own components that any of them names

    def add(self, key: Key, value: Any, origin: str) -> None:
        """`value` of `key`, which `origin` gives."""
        self.values[key], self.origins[key] = value, origin
        for name in value if isinstance(value, list) else str(value).split(","):
            if ":" in str(name):
                self.named.setdefault(key[0], set()).add(registry.table_name(str(name).strip("[]\"' ")))


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
                raise AsrtoolError(
                    f"{file}: {section} is a value, expected a table", f"write [{section}] above its keys"
                )
            for key, value in values.items() if isinstance(values, Mapping) else [("", values)]:
                pairs = value.items() if isinstance(value, Mapping) else [("", value)]
                for inner, item in pairs:
                    given.add(tuple(part for part in (section, key, inner) if part), item, str(file))
    for override in overrides:
        given.add(*parse_override(override), f"--set {override}")
    return given


def build(given: Given) -> Config:
    """The settings that `given` stands for; raises AsrtoolError as load_config does."""
    for key in given.values:
        if key[0] not in SECTIONS:
            raise AsrtoolError(f"{given.origins[key]}: unknown section {key[0]!r}", nearest(key[0], SECTIONS))
    try:
        sections = {name: _Section(name, kind, given).build() for name, kind in CLASSES.items()}
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
        return _Section(name, CLASSES[name], given).build()
    except ValueError as error:
        raise AsrtoolError(f"{origin}: {error}", "make the file again") from error


class _Section:
    """One section on its way from `given` to its dataclass."""

    def __init__(self, name: str, kind: Any, given: Given) -> None:
        self.name = name
        self.kind = kind
        self.given = given
        self.hints = typing.get_type_hints(kind)
        self.kinds = {item.name: item.metadata["kind"] for item in dataclasses.fields(kind) if "kind" in item.metadata}

    def build(self) -> Any:
        values = {}
        for key in self._keys(2):
            if key[1] not in self.hints:
                raise self._unknown(key)
            if key[1] not in self.kinds:
                values[key[1]] = self._convert(key, self.hints[key[1]])
        chosen = {name: self._choose(name) for name in self.kinds}
        self._check_tables([item for items in chosen.values() for item in items])
        for name, items in chosen.items():
            values[name] = tuple(items) if self._is_list(name) else items[0]
        return self.kind(**values)

    def _choose(self, field_name: str) -> list[Choice]:
        """The components of a field, with the settings of their tables."""
        key, kind = (self.name, field_name), self.kinds[field_name]
        if key in self.given.values:
            names = self._convert(key, tuple[str, ...] if self._is_list(field_name) else str)
        else:
            default = getattr(self.kind(), field_name)
            names = tuple(item.name for item in default) if self._is_list(field_name) else default.name
        return [self._with_table(kind, name, key) for name in ([names] if isinstance(names, str) else names)]

    def _with_table(self, kind: str, name: str, key: Key) -> Choice:
        try:
            settings = registry.settings_class(kind, name)
        except AsrtoolError as error:
            origin = self.given.origins.get(key, "default")
            raise AsrtoolError(f"{origin}: {'.'.join(key)}: {error.what}", error.hint) from error
        return Choice(kind, name, settings(**self._table(registry.table_name(name), settings)))

    def _table(self, table: str, settings: Any) -> dict[str, Any]:
        """The values that are given for the table of a component with these `settings`."""
        hints = {name: kind for name, kind in typing.get_type_hints(settings).items() if not _is_class_variable(kind)}
        values = {}
        for key in self._keys(3):
            if key[1] == table:
                if key[2] not in hints:
                    raise self._unknown(key)
                values[key[2]] = self._convert(key, hints[key[2]])
        return values

    def _check_tables(self, chosen: list[Choice]) -> None:
        """Tables of components that are not chosen may be there, and must be right where they are known here."""
        known = {name: kind for kind in dict.fromkeys(self.kinds.values()) for name in registry.names(kind)}
        others = {*(item.table for item in chosen), *self.given.named.get(self.name, ())}
        for table, key in {key[1]: key for key in self._keys(3)}.items():
            if table in known:
                self._table(table, registry.settings_class(known[table], table))
            elif table not in others:
                raise self._unknown(key)

    def _is_list(self, field_name: str) -> bool:
        return typing.get_origin(self.hints[field_name]) is tuple

    def _keys(self, length: int) -> list[Key]:
        return [key for key in self.given.values if key[0] == self.name and len(key) == length]

    def _convert(self, key: Key, kind: Any) -> Any:
        return convert(self.given.values[key], kind, f"{self.given.origins[key]}: {'.'.join(key)}")

    def _unknown(self, key: Key) -> AsrtoolError:
        full = ".".join(key)
        known = list(known_keys())
        same_name = [other for other in known if other.rpartition(".")[2] == key[-1]]
        hint = f"did you mean {same_name[0]}?" if same_name else nearest(full, known)
        return AsrtoolError(f"{self.given.origins[key]}: unknown key {full}", hint)


def known_keys() -> Iterator[str]:
    """Every key of the sections and of the components that come with the toolkit."""
    for section, kind in CLASSES.items():
        for item in dataclasses.fields(kind):
            yield f"{section}.{item.name}"
            if "kind" in item.metadata:
                for name in registry.names(item.metadata["kind"]):
                    settings = registry.settings_class(item.metadata["kind"], name)
                    yield from (f"{section}.{name}.{inner.name}" for inner in dataclasses.fields(settings))


def _paths(given: Given, data: Data) -> dict[str, str]:
    """Where corpora lie, by the keys of their releases."""
    keys = [key for key in given.values if key[0] == "paths"]
    if not keys:
        return {}
    from local.named import known_releases

    known = known_releases(data)
    for key in keys:
        if len(key) != 2 or key[1] not in known:
            raise AsrtoolError(f"{given.origins[key]}: unknown key {'.'.join(key)}", nearest(key[-1], known))
    return {key[1]: convert(given.values[key], str, f"{given.origins[key]}: {'.'.join(key)}") for key in keys}


def _is_class_variable(kind: Any) -> bool:
    return typing.get_origin(kind) is typing.ClassVar


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
