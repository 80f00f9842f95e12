"""Building blocks of settings: choices by name, and checks that name the key.

The comment after a field is its unit and meaning, which `asrtool config` prints.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import json
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from asrtool.settings import registry

DASK = "dask:"  # before the address of a scheduler
# Folders that search methods read, named for the commands that write them; options of `tune` and `decode`.
SEARCHED = ("tokenizer", "lang", "lm", "graph", "nnlm")


@dataclass(frozen=True)
class Choice:
    """A component chosen by name, with its settings."""

    kind: str
    name: str
    settings: Any

    @classmethod
    def of(cls, kind: str, name: str, **values: Any) -> Choice:
        """Return `name` with its default settings changed by `values`.

        Raises AsrtoolError for an unknown name.
        """
        return cls(kind, name, registry.settings_class(kind, name)(**values))

    def load(self) -> Any:
        """Import the component."""
        return registry.load(self.kind, self.name)

    @property
    def table(self) -> str:
        """Name of the table of its settings."""
        return table_name(self.name)


def table_name(name: str) -> str:
    """Return the settings table of `name`: its last part for a custom object."""
    return name.rpartition(":")[2]


def choice(kind: str, default: str) -> Any:
    """Return a field that holds a Choice."""
    return field(default_factory=lambda: Choice.of(kind, default), metadata={"kind": kind})


def choices(kind: str, *defaults: str) -> Any:
    """Return a field that holds a tuple of Choice."""
    return field(default_factory=lambda: tuple(Choice.of(kind, name) for name in defaults), metadata={"kind": kind})


def component_name(kind: str, default: str) -> Any:
    """Return a field that holds the name of a component without settings."""
    return field(default=default, metadata={"kind": kind})


def path(default: Any = "", kind: str = "") -> Any:
    """Return a field that holds a path, or several, absolute after it is read.

    A name of a component of `kind` is no path.
    """
    return field(default=default, metadata={"path": kind})


_type_hints = functools.cache(typing.get_type_hints)


def field_types(settings: Any) -> dict[str, Any]:
    """Return field -> type of a dataclass, without class variables."""
    types = _type_hints(settings)
    return {item.name: types[item.name] for item in dataclasses.fields(settings)}


def kinds_of(settings: Any) -> dict[str, str]:
    """Return field -> kind of its components."""
    return {item.name: item.metadata["kind"] for item in dataclasses.fields(settings) if "kind" in item.metadata}


def paths_of(settings: Any) -> dict[str, list[str]]:
    """Return field -> values that are no paths, of its paths."""
    kinds = {item.name: item.metadata["path"] for item in dataclasses.fields(settings) if "path" in item.metadata}
    return {name: registry.names(kind) if kind else [] for name, kind in kinds.items()}


def one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise ValueError unless the `value` of key `name` is among `allowed`."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(allowed)}")


def between(name: str, value: float, low: float, high: float) -> None:
    """Raise ValueError unless low <= value <= high."""
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}, expected {low:g} to {high:g}")


def at_least(low: float, table: str, settings: object, *names: str) -> None:
    """Raise ValueError if one of the fields `names` is below `low`."""
    for name in names:
        if getattr(settings, name) < low:
            raise ValueError(f"{table}.{name} is {getattr(settings, name)}, expected {low:g} or more")


def positive(table: str, settings: object, *names: str) -> None:
    """Raise ValueError unless all fields `names` are positive."""
    for name in names:
        if not getattr(settings, name) > 0:
            raise ValueError(f"{table}.{name} is {getattr(settings, name)}, expected more than 0")


def check_executor(name: str, value: str) -> None:
    """Raise ValueError unless `value` is processes or a Dask address."""
    if value != "local" and not (value.startswith(DASK) and len(value) > len(DASK)):
        raise ValueError(f"{name} is {value!r}, expected local or dask:ADDRESS of a scheduler")


def interface_or_subnet(name: str, value: str) -> None:
    """Raise ValueError unless `value` is an interface name or a subnet."""
    if "/" in value:
        try:
            ipaddress.ip_network(value, strict=False)
        except ValueError:
            expected = "expected the name of an interface, or a subnet such as 10.1.0.0/16"
            raise ValueError(f"{name} is {value!r}, {expected}") from None


def releases_of(corpus: str) -> set[str]:
    """Return the [paths] keys of the releases of `corpus`."""
    return {release.key for release in registry.load("corpus", corpus)().releases}


def changed_setting(before: Mapping[str, Any], now: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return the first key with other values `before` and `now`, and both, or ''.

    A key that `before` lacks had its default, so a new setting changes nothing. A key that `now` lacks belongs to a
    component that is no longer chosen or known.
    """
    for key in sorted(now):
        value = before.get(key, defaults.get(key))
        if value != now[key]:
            return f"{key} {json.dumps(value)} -> {json.dumps(now[key])}"
    return ""
