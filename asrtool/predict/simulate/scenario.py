"""Scenarios: all settings of a simulation, from files and overrides.

The files of `scenarios/` have names; custom ones are named by path.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.settings import (
    Compute,
    Distributed,
    Faults,
    Job,
    Loading,
    Network,
    Published,
    Saving,
    Slow,
    Uncertain,
)
from asrtool.settings.config import to_table
from asrtool.settings.documentation import meanings
from asrtool.settings.schema import field_types
from asrtool.settings.toml_files import build_section, read_given
from asrtool.settings.values import format_key, format_value, nearest

FOLDER = Path(__file__).parent / "scenarios"
HINT = "correct the value in the scenario or in --set"


@dataclass(frozen=True)
class Scenario:
    """A field is a section of the TOML file."""

    job: Job = field(default_factory=Job)
    distributed: Distributed = field(default_factory=Distributed)
    compute: Compute = field(default_factory=Compute)
    network: Network = field(default_factory=Network)
    slow: Slow = field(default_factory=Slow)
    faults: Faults = field(default_factory=Faults)
    loading: Loading = field(default_factory=Loading)
    saving: Saving = field(default_factory=Saving)
    uncertain: Uncertain = field(default_factory=Uncertain)
    published: Published = field(default_factory=Published)


CLASSES: dict[str, Any] = typing.get_type_hints(Scenario)


def names() -> list[str]:
    """Return the names of the built-in scenarios."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find(name: str) -> Path:
    """Return the file of a scenario by name or path; AsrtoolError if none."""
    known = names()
    if name in known:
        return FOLDER / f"{name}.toml"
    if Path(name).is_file():
        return Path(name)
    what = f"no scenario and no file {name!r}; the scenarios are {', '.join(known)}"
    raise AsrtoolError(
        what, f"{nearest(name, known) or 'choose one of these.'} A file of your own: docs/guide/simulate.md"
    )


def load_scenario(files: Iterable[Path] = (), overrides: Iterable[str] = ()) -> Scenario:
    """Read `files`, then `overrides`; later ones win. AsrtoolError as load_config."""
    given = read_given(files, overrides)
    for key in given.values:
        if key[0] not in CLASSES:
            what = f"{given.origins[key]}: unknown section {key[0]!r} of a scenario"
            raise AsrtoolError(what, nearest(key[0], CLASSES) or f"the sections are {', '.join(CLASSES)}")
    try:
        return Scenario(**{name: build_section(name, given, CLASSES) for name in CLASSES})
    except ValueError as error:
        raise AsrtoolError(str(error), HINT) from error


def load_ends(files: Sequence[Path] = (), overrides: Sequence[str] = ()) -> list[Scenario]:
    """Return the scenario, then the other ends of its `uncertain` settings.

    An override of the same key is certain.
    """
    scenario = load_scenario(files, overrides)
    ends = [load_scenario(files, [*end, *overrides]) for end in (scenario.uncertain.low, scenario.uncertain.high)]
    return [scenario, *(end for end in ends if end != scenario)]


def is_of_scenario(override: str) -> bool:
    """Return whether an override is for a section of a scenario."""
    return override.partition(".")[0] in CLASSES


def format_scenario(scenario: Scenario) -> str:
    """Format all settings with their meaning as a TOML file."""
    return "\n".join(line for name in CLASSES for line in _lines(name, getattr(scenario, name)))


def _lines(name: str, section: Any) -> Iterator[str]:
    about = (type(section).__doc__ or "").partition("\n")[0]
    yield f"[{name}]  # {about}"
    comments, table = meanings(type(section)), to_table(section)
    for key in field_types(type(section)):
        yield f"{key} = {format_value(table[key])}  # {comments[key]}"
    yield ""
    for key, inner in table.items():
        if isinstance(inner, dict):
            yield f"[{name}.{format_key(key)}]"
            yield from (f"{inner_key} = {format_value(value)}" for inner_key, value in inner.items())
            yield ""
