"""Tables, and text that is read as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Table cells by row; columns `text` are words, all others numbers.

    `note` describes what is not shown.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    text: Sequence[int] = (0,)
    note: str = ""

    def to_markdown(self) -> str:
        return format_table(self.head, self.rows)


def format_table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Format a Markdown table with `head` and a line a row."""
    names = list(head)
    lines: list[Iterable[object]] = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
