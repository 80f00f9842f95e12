"""Read settings from TOML files and overrides, with the origin of each value."""

from __future__ import annotations

import logging
import os
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.config import SECTIONS, Config, Place, to_table
from asrtool.settings.data import Data
from asrtool.settings.decode import suiting_methods
from asrtool.settings.removed import REMOVED, REPLACED_COMPONENTS
from asrtool.settings.schema import Choice, field_types, kinds_of, paths_of, table_name
from asrtool.settings.values import (
    ALL,
    OTHER_NAMES,
    TextValue,
    check_kind,
    convert,
    format_value,
    nearest,
    nearest_key,
    parse_override,
    read_toml,
)
from asrtool.url import as_url

OVERRIDE = "--set "  # what the origin of an override begins with
SUITS = "suits "  # and that of a value that is chosen for a key that nothing sets
CLASSES: dict[str, Any] = {name: kind for name, kind in typing.get_type_hints(Config).items() if name != "paths"}
Key = tuple[str, ...]  # section and key, or section, table and key


@dataclass
class Given:
    """Values of files and overrides as written, with origins; later ones win."""

    values: dict[Key, Any] = field(default_factory=dict)
    origins: dict[Key, str] = field(default_factory=dict)
    custom: dict[str, set[str]] = field(default_factory=dict)  # section -> tables of custom components in use
    removed: list[str] = field(default_factory=list)  # a line for each setting of an earlier version

    def add(self, key: Key, value: Any, origin: str) -> None:
        """Take `value` of `key` from `origin`.

        Raises AsrtoolError for a removed key with another value than the only one left.
        """
        for old, new in REPLACED_COMPONENTS.items():
            if old in (*key, str(value).strip("\"' ")):
                self.removed.append(f"{origin}: {'.'.join(key)}: {old} was removed, use {new}, which is the same")
                key = tuple(new if part == old else part for part in key)
                value = new if str(value).strip("\"' ") == old else value
        if (name := ".".join(key)) in REMOVED:
            left, why = REMOVED[name]
            where = f"{origin}: {name}"
            if left is not None and convert(value, tuple[float, ...] if left == () else type(left), where) != left:
                raise AsrtoolError(f"{where} was removed: {why}", f"leave it out; it is {format_value(left)} now")
            self.removed.append(f"{where} was removed and has no effect: {why}")
            return
        self.values[key], self.origins[key] = value, origin
        for name in value if isinstance(value, list) else str(value).split(","):
            if ":" in str(name):
                self.custom.setdefault(key[0], set()).add(table_name(str(name).strip("[]\"' ")))


def load_config(files: Iterable[Path | str] = (), overrides: Iterable[str] = (), warn: bool = True) -> Config:
    """Read TOML `files`, then apply `overrides`; later ones win.

    An override is ``section.key=value``. A table of a component that is not chosen is checked and has no effect, so
    that one file can be laid over another. A relative path in a file is relative to that file, one of an override to
    the current directory. Raises AsrtoolError for a missing file, broken TOML, an unknown key (naming the nearest) or
    a wrong type or value.
    """
    return build(read_given(files, overrides, warn))


def read_given(files: Iterable[Path | str], overrides: Iterable[str], warn: bool = True) -> Given:
    """Read `files` and `overrides` in order; AsrtoolError if one cannot be read.

    For files that asrtool itself wrote, leave out `warn`: nobody can correct them.
    """
    given = Given()
    for file in files:
        for section, values in read_toml(Path(file)).items():
            if section in SECTIONS and not isinstance(values, Mapping):
                what = f"{file}: {section} is a value, expected a table"
                raise AsrtoolError(what, f"write [{section}] above its keys")
            for key, value in _keys(section, values) if isinstance(values, Mapping) else [((section,), values)]:
                given.add(key, value, str(file))
    for override in overrides:
        given.add(*parse_override(override), f"{OVERRIDE}{override}")
    for line in given.removed if warn else ():
        logging.warning("%s", line)
    return given


def _keys(section: str, table: Mapping[str, Any]) -> Iterator[tuple[Key, Any]]:
    """Yield key and value of everything in the table of a section."""
    for key, value in table.items():
        for inner, item in value.items() if isinstance(value, Mapping) else [("", value)]:
            yield tuple(filter(None, (section, key, inner))), item


def build(given: Given) -> Config:
    """Build the settings from `given`; raises AsrtoolError as load_config.

    If a default does not suit the given values and exactly one other value does, `given` gets that.
    """
    for key in given.values:
        if key[0] not in SECTIONS:
            in_file = not given.origins[key].startswith(OVERRIDE)
            hint = nearest(f"[{key[0]}]", map("[{}]".format, SECTIONS), 0.8) if in_file else ""
            hint = hint or nearest_key(".".join(key), known_keys()) or nearest(key[0], SECTIONS) or ALL
            raise AsrtoolError(f"{given.origins[key]}: unknown section {key[0]!r}", hint)
    try:
        sections = {name: build_section(name, given) for name in CLASSES}
        for name, value, because in _suiting(Config(**sections), given):
            key = tuple(name.split("."))
            if key not in given.values:
                of = [each for each in because if tuple(each.split(".")) in given.values] or because
                given.add(key, value, f"{SUITS}{' and '.join(of)}")
                sections[key[0]] = build_section(key[0], given)
        return Config(paths=_paths(given, sections["data"]), **sections)
    except ValueError as error:
        raise AsrtoolError(str(error), "correct the value in the configuration file or in --set") from error


def _suiting(config: Config, given: Given) -> Iterator[tuple[str, Any, list[str]]]:
    """Yield key, value and reason for defaults that do not fit the given values.

    Only keys that one value fits are yielded.
    """
    methods = suiting_methods(config)
    if methods and methods != list(to_table(config.decode)["methods"]):
        keys = ["model.objective", "tokenizer.unit", "lm.large", "nnlm.enabled"]
        yield "decode.methods", methods, keys
    kept = f"keep_{config.average.by}"
    if config.average.num > getattr(config.train, kept):
        if ("train", kept) in given.values:
            yield "average.num", getattr(config.train, kept), [f"train.{kept}"]
        else:
            yield f"train.{kept}", config.average.num, [f"average.{key}" for key in ("num", "by")]
    if config.augment.active:
        yield "features.keep_audio", True, ["augment"]


def load_section(name: str, table: Mapping[str, Any], origin: str) -> Any:
    """Read the section `name` of a table of `to_table`; missing keys are defaults.

    Raises AsrtoolError for a key or a value that this version does not have.
    """
    given = Given()
    for key, value in _keys(name, table):
        given.add(key, list(value) if isinstance(value, tuple) else value, origin)
    try:
        return build_section(name, given)
    except ValueError as error:
        raise AsrtoolError(f"{origin}: {error}", "make the file again") from error


def known_paths(data: Data) -> dict[str, str]:
    """Return the keys of [paths] with titles, of built-in and named corpora."""
    from asrtool.local.corpus import known_releases

    return {key: release.title for key, release in known_releases(data).items()}


def used_paths(data: Data, extra_text: Sequence[str] = ()) -> list[str]:
    """Return the keys of [paths] that the corpora of `data` and extra texts need.

    Raises AsrtoolError for a role that a corpus lacks.
    """
    from asrtool.local.corpus import named_corpora

    return [release.key for item in named_corpora(data, extra_text) for release in item.releases]


def _paths(given: Given, data: Data) -> dict[str, Place]:
    """Read the places of corpora by the keys of their releases."""
    keys = [key for key in given.values if key[0] == "paths"]
    known = known_paths(data) if keys else {}
    for key in keys:
        if len(key) != 2 or key[1] not in known:
            raise AsrtoolError(
                f"{given.origins[key]}: unknown key {'.'.join(key)}",
                nearest_key(".".join(key), [f"paths.{name}" for name in known]) or ALL,
            )
    return {key[1]: _place(given.values[key], given.origins[key], ".".join(key)) for key in keys}


def _place(value: Any, origin: str, key: str) -> Place:
    """Parse a place: text is one directory, a list several."""
    several = isinstance(value, list) or (isinstance(value, TextValue) and value.startswith("["))
    return _absolute(convert(value, tuple[str, ...] if several else str, f"{origin}: {key}"), origin)


def _absolute(place: Place, origin: str, names: Collection[str] = ()) -> Place:
    """Return `place` from `origin` as absolute paths; addresses and `names` stay."""
    start = Path() if origin.startswith(OVERRIDE) else Path(origin).parent

    def absolute(path: str) -> str:
        if not path or path in names:
            return path
        return as_url(path) or os.path.abspath(start / os.path.expanduser(path))

    return absolute(place) if isinstance(place, str) else tuple(map(absolute, place))


def build_section(name: str, given: Given, classes: Mapping[str, Any] = CLASSES) -> Any:
    """Build the section `name` of `classes` from `given`; missing keys are defaults.

    Raises AsrtoolError for an unknown key (naming the nearest) or component and for a wrong type, ValueError for a
    value that the section refuses.
    """
    return _Section(name, given, classes).build()


def build_component(key: Key, name: str, given: Given) -> Choice:
    """Build the component `name` that `key` can choose, with its given settings."""
    return _Section(key[0], given).component(key, name)


def known_keys(classes: Mapping[str, Any] = CLASSES) -> Iterator[str]:
    """Return the keys of all sections and built-in components."""
    for section, section_class in classes.items():
        yield from (f"{section}.{name}" for name in field_types(section_class))
        for kind in kinds_of(section_class).values():
            for name in registry.names(kind):
                yield from (f"{section}.{name}.{inner}" for inner in field_types(registry.settings_class(kind, name)))


class _Section:
    """One section on its way from `given` to its dataclass."""

    def __init__(self, name: str, given: Given, classes: Mapping[str, Any] = CLASSES) -> None:
        self.name = name
        self.classes = classes
        self.section_class = classes[name]
        self.given = given
        self.types = field_types(self.section_class)
        self.kinds = kinds_of(self.section_class)

    def build(self) -> Any:
        values = {}
        for key in self._keys(2):
            if key[1] not in self.types:
                raise self._unknown(key)
            if key[1] not in self.kinds:
                values[key[1]] = self._convert(key, self.types[key[1]], self.section_class)
        chosen = {name: self._choose(name) for name in self.kinds}
        self._check_tables([item for items in chosen.values() for item in items])
        for name, items in chosen.items():
            values[name] = tuple(items) if self._is_list(name) else items[0]
        return self.section_class(**values)

    def _choose(self, field_name: str) -> list[Choice]:
        """Return the components of a field, with the settings of their tables."""
        key = (self.name, field_name)
        if key in self.given.values:
            names = self._convert(key, tuple[str, ...] if self._is_list(field_name) else str)
        else:
            names = to_table(self.section_class())[field_name]
        names = [names] if isinstance(names, str) else names
        return [self.component(key, registry.full_name(self.kinds[field_name], name)) for name in names]

    def component(self, key: Key, name: str) -> Choice:
        """Return the component `name`, the value of `key`."""
        kind, table = self.kinds[key[1]], table_name(name)
        settings = self._settings_class(key, kind, name)
        for inner, inner_type in field_types(settings).items():
            check_kind(inner_type, f"{name}: {self.name}.{table}.{inner}")
        values = self._table(table, settings)
        for inner, inner_kind in kinds_of(settings).items():
            if inner in values:
                values[inner] = registry.full_name(inner_kind, values[inner])
                self._settings_class((self.name, table, inner), inner_kind, values[inner])
        try:
            return Choice(kind, name, settings(**values))
        except ValueError as error:
            raise ValueError(self._with_table(table, str(error))) from error
        except TypeError as error:  # of a custom class
            raise AsrtoolError(f"{name}: its Settings cannot be made: {error}", "give every field a default") from error

    def _with_table(self, table: str, found: str) -> str:
        """Name a settings class with its table, since several can share a name."""
        if found.startswith(f"{self.name}."):
            return found
        return f"{self.name}.{found}" if found.startswith(f"{table}.") else f"{self.name}.{table}: {found}"

    def _settings_class(self, key: Key, kind: str, name: str) -> Any:
        try:
            return registry.settings_class(kind, name)
        except AsrtoolError as error:
            raise AsrtoolError(f"{self._place(key)}: {error.what}", error.hint) from error

    def _table(self, table: str, settings: Any) -> dict[str, Any]:
        """Return the given values for the table of a component's `settings`."""
        types = field_types(settings)
        values = {}
        for key in self._keys(3):
            if key[1] == table:
                if key[2] not in types:
                    raise self._unknown(key, [f"{self.name}.{table}.{name}" for name in types])
                values[key[2]] = self._convert(key, types[key[2]], settings)
        return values

    def _check_tables(self, chosen: Iterable[Choice]) -> None:
        """Check that no two components share a table, and tables of those not chosen."""
        tables: dict[str, Choice] = {}
        for item in chosen:
            other = tables.setdefault(item.table, item)
            if type(other.settings) is not type(item.settings):
                what = f"{other.name} and {item.name} would share the table [{self.name}.{item.table}]"
                raise AsrtoolError(what, "rename one of the objects")
        known = self._known_tables()
        for table, key in {key[1]: key for key in self._keys(3)}.items():
            if table in tables or table in self.given.custom.get(self.name, ()):
                continue
            if table in known:
                self._table(table, registry.settings_class(known[table], table))
            elif table not in {
                table_name(path) for kind in self.kinds.values() for path in registry.plugins(kind).values()
            }:
                raise self._unknown(key)

    def _known_tables(self) -> dict[str, str]:
        """Return table -> kind of the built-in components."""
        return {name: kind for kind in dict.fromkeys(self.kinds.values()) for name in registry.names(kind)}

    def _is_list(self, field_name: str) -> bool:
        return typing.get_origin(self.types[field_name]) is tuple

    def _keys(self, length: int) -> list[Key]:
        return [key for key in self.given.values if key[0] == self.name and len(key) == length]

    def _convert(self, key: Key, kind: Any, settings: Any = None) -> Any:
        value = convert(self.given.values[key], kind, self._place(key))
        names = paths_of(settings).get(key[-1]) if settings else None
        return value if names is None else _absolute(value, self.given.origins[key], names)

    def _place(self, key: Key) -> str:
        return f"{self.given.origins.get(key, 'default')}: {'.'.join(key)}"

    def _unknown(self, key: Key, more: Iterable[str] = ()) -> AsrtoolError:
        full = ".".join(key)
        known = [*known_keys(self.classes), *more]
        if len(key) == 2 and key[1] in self._known_tables():
            keys = [name for name in known if name.startswith(f"{full}.")]
            what = f"{self._place(key)} is a table, expected one of its keys"
            return AsrtoolError(what, f"for example {keys[0]}" if keys else "it has none")
        hint = nearest_key(full, known, OTHER_NAMES if self.classes is CLASSES else {}) or ALL
        return AsrtoolError(f"{self.given.origins[key]}: unknown key {full}", hint)
