"""Print docs/guide/settings.md: ``python -m asrtool.settings.settings_page``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from asrtool.settings.config import SECTIONS, Config
from asrtool.settings.documentation import Table, describe
from asrtool.settings.schema import kinds_of
from asrtool.settings.toml_files import CLASSES, Given
from asrtool.settings.values import format_value

HEAD = """# Settings

    asrtool config                    # values of a recipe and their origin
    asrtool config train.optimizer    # choices of a setting

A component is chosen by its name; its settings are a table of that name, which has no effect while another one is
chosen. `package.module:Name` chooses one of your own ([extending](extending.md)).

Made by `python -m asrtool.settings.settings_page` from the classes in `asrtool/settings`; change it
there."""


def format_page() -> str:
    """Format the page as Markdown."""
    return "\n\n".join([HEAD, *(text for section in SECTIONS for text in _section(section))]) + "\n"


def _section(section: str) -> Iterator[str]:
    yield f"## `[{section}]`"
    table, *_ = describe(Config(), Given(), section)
    yield table.about
    yield _format_rows(table)
    by_kind: dict[str, list[str]] = {}
    for key, kind in kinds_of(CLASSES[section]).items() if section in CLASSES else ():
        by_kind.setdefault(kind, []).append(f"{section}.{key}")
    for keys in by_kind.values():
        yield from _choices(keys, describe(Config(), Given(), keys[0])[1:])


def _choices(keys: list[str], tables: list[Table]) -> Iterator[str]:
    """Yield lines on what `keys`, which share their choices, can choose."""
    yield f"Choices of {', '.join(f'`{key}`' for key in keys)}:"
    yield "\n".join(f"- `{table.name.partition('.')[2]}`: {table.about}" for table in tables)
    for table in tables:
        if table.settings:
            yield f"### `[{table.name}]`"
            yield _format_rows(table)


def _format_rows(table: Table) -> str:
    rows = [f"| `{row.name}` | `{format_value(row.value)}` | {row.meaning} |" for row in table.settings]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


if __name__ == "__main__":
    sys.stdout.write(format_page())
