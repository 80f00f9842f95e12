"""Text that is read as Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def format_table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A table with `head` and a line a row."""
    names = list(head)
    lines: list[Iterable[object]] = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
