"""All settings of a run, and their form as TOML; toml_files.py reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.settings.data import Augment, Data, Features, Mini, Remote
from asrtool.settings.decode import Decode
from asrtool.settings.distributed import Distributed
from asrtool.settings.lang import Graph, Lang, Lm, Tokenizer
from asrtool.settings.launch import Launch
from asrtool.settings.models import Model, Tree
from asrtool.settings.schema import Choice, kinds_of
from asrtool.settings.train import Average, Nnlm, SpecAugment, Train
from asrtool.settings.values import flatten, format_key, format_value

Place = str | tuple[str, ...]  # of a release: a directory or tar file, or several; an empty one is none


@dataclass(frozen=True)
class Config:
    """Settings of a run: one field a section, and `paths` of corpora by key."""

    paths: Mapping[str, Place] = field(default_factory=dict)
    mini: Mini = field(default_factory=Mini)
    data: Data = field(default_factory=Data)
    features: Features = field(default_factory=Features)
    remote: Remote = field(default_factory=Remote)
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    lang: Lang = field(default_factory=Lang)
    lm: Lm = field(default_factory=Lm)
    graph: Graph = field(default_factory=Graph)
    tree: Tree = field(default_factory=Tree)
    model: Model = field(default_factory=Model)
    augment: Augment = field(default_factory=Augment)
    specaugment: SpecAugment = field(default_factory=SpecAugment)
    train: Train = field(default_factory=Train)
    distributed: Distributed = field(default_factory=Distributed)
    launch: Launch = field(default_factory=Launch)
    average: Average = field(default_factory=Average)
    nnlm: Nnlm = field(default_factory=Nnlm)
    decode: Decode = field(default_factory=Decode)


SECTIONS: tuple[str, ...] = tuple(item.name for item in dataclasses.fields(Config))


def to_table(settings: Any) -> dict[str, Any]:
    """Convert a section to a TOML table with the tables of chosen components."""
    if isinstance(settings, Mapping):
        return dict(settings)
    table: dict[str, Any] = {}
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        table[item.name] = _names(value)
        table |= {chosen.table: to_table(chosen.settings) for chosen in _choices(value)}
    return {key: value for key, value in table.items() if value != {}}


def select(config: Config, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return section -> table of whole sections (``data``) or keys (``data.train``)."""
    tables: dict[str, dict[str, Any]] = {}
    for name in names:
        section, _, key = name.partition(".")
        table = to_table(getattr(config, section))
        if key:
            kept = [key, *(chosen.table for chosen in _choices(getattr(getattr(config, section), key)))]
            table = {name: table[name] for name in kept if name in table}
        tables.setdefault(section, {}).update(table)
    return tables


def format_toml(config: Config, names: Iterable[str] = SECTIONS) -> str:
    """Format sections and keys as TOML that load_config reads back."""
    lines: list[str] = []
    for section, table in select(config, names).items():
        lines += [f"[{section}]", *_lines(table), ""]
        for name, inner in table.items():
            if isinstance(inner, Mapping):
                lines += [f"[{section}.{format_key(name)}]", *_lines(inner), ""]
    return "\n".join(lines)


def defaults_of(config: Config, names: Iterable[str]) -> dict[str, Any]:
    """Return ``section.key`` or ``section.table.key`` -> default of `names`.

    A key that an older file lacks has its default. Components are the ones of `config`, except for keys that name
    them.
    """
    names = tuple(names)
    sections = {}
    for name in SECTIONS[1:]:
        section = getattr(config, name)
        sections[name] = type(section)(**{key: _with_defaults(getattr(section, key)) for key in kinds_of(section)})
    return {**flatten(select(Config(**sections), names)), **flatten(select(Config(), names))}


def chosen_components(config: Config, names: Iterable[str]) -> Iterator[Choice]:
    """Yield the components that `names` choose, and components these name."""
    for name in names:
        section, _, key = name.partition(".")
        values = vars(getattr(config, section)) if section != "paths" else {}
        for value in [values[key]] if key else values.values():
            for chosen in _choices(value):
                yield chosen
                for inner, kind in kinds_of(chosen.settings).items():
                    yield Choice.of(kind, getattr(chosen.settings, inner))


def check_conflicts(config: Config) -> None:
    """Raise AsrtoolError for settings of different sections that conflict.

    For the settings of a whole run: a stage has defaults for other sections.
    """
    parts = [getattr(config, section) for section in SECTIONS]
    check_parts([*parts, *(chosen.settings for chosen in chosen_components(config, SECTIONS))], config)


def check_parts(parts: Iterable[Any], config: Config) -> None:
    """Check each of `parts` that has a method `check` against the rest of `config`."""
    try:
        for part in parts:
            if hasattr(part, "check"):
                part.check(config)
    except ValueError as error:
        raise AsrtoolError(str(error), "change one of them in the configuration file or with --set") from error


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {format_value(value)}" for key, value in table.items() if not isinstance(value, Mapping)]


def _choices(value: Any) -> tuple[Choice, ...]:
    items = value if isinstance(value, tuple) else (value,)
    return tuple(item for item in items if isinstance(item, Choice))


def _names(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_names, value))
    return value.name if isinstance(value, Choice) else value


def _with_defaults(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_with_defaults, value))
    return Choice.of(value.kind, value.name)
