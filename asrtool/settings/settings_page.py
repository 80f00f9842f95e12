"""Print docs/guide/settings.md: ``python -m asrtool.settings.settings_page``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from asrtool.settings.config import SECTIONS, Config
from asrtool.settings.documentation import Table, describe
from asrtool.settings.schema import kinds_of
from asrtool.settings.toml_files import CLASSES, Given
from asrtool.settings.values import format_value

HEAD = """# Settings

    asrtool config                    # values of a recipe and their origin
    asrtool config train.optimizer    # choices of a setting

A component is chosen by its name; its settings are a table of that name, which has no effect while another one is
chosen. `package.module:Name` chooses one of your own ([extending](extending.md)). If several sections have the same
choices, the first of them lists these.

Made by `python -m asrtool.settings.settings_page` from the classes in `asrtool/settings`; change it
there."""


def format_page() -> str:
    """Format the page as Markdown."""
    keys_of: dict[str, list[str]] = {}
    for section, settings in CLASSES.items():
        for key, kind in kinds_of(settings).items():
            keys_of.setdefault(kind, []).append(f"{section}.{key}")
    texts = (text for section in SECTIONS for text in _section(section, keys_of.values()))
    return "\n\n".join([HEAD, *texts]) + "\n"


def _section(section: str, keys_of_kinds: Iterable[list[str]]) -> Iterator[str]:
    """Yield the table of `section`, and the choices of kinds whose first key it has."""
    yield f"## `[{section}]`"
    table, *_ = describe(Config(), Given(), section)
    yield table.about
    yield _format_rows(table)
    for keys in keys_of_kinds:
        if keys[0].startswith(f"{section}."):
            yield from _choices(keys)


def _choices(keys: list[str]) -> Iterator[str]:
    """Yield lines on what `keys` can choose; equal tables share a heading."""
    by_section = {key.partition(".")[0]: describe(Config(), Given(), key)[1:] for key in keys}
    yield f"Choices of {', '.join(f'`{key}`' for key in keys)}:"
    tables = next(iter(by_section.values()))
    yield "\n".join(f"- `{table.name.partition('.')[2]}`: {table.about}" for table in tables)
    names: dict[str, list[str]] = {}
    for table in (table for same in zip(*by_section.values(), strict=True) for table in same if table.settings):
        names.setdefault(_format_rows(table), []).append(f"`[{table.name}]`")
    for rows, sharing in names.items():
        yield f"### {', '.join(sharing)}"
        yield rows


def _format_rows(table: Table) -> str:
    rows = [f"| `{row.name}` | `{format_value(row.value)}` | {row.meaning} |" for row in table.settings]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


if __name__ == "__main__":
    sys.stdout.write(format_page())
