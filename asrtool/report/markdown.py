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


def format_times(*seconds: float) -> str:
    """Format times as a range, in the unit that suits the last one."""
    units = (("days", 2 * 86400, 86400), ("h", 3600, 3600), ("min", 120, 60), ("s", 0, 1))
    unit, length = next((unit, length) for unit, least_s, length in units if seconds[-1] >= least_s)
    return f"{' to '.join(f'{each / length:.3g}' for each in seconds)} {unit}"


def format_table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Format a Markdown table with `head` and a line a row."""
    names = list(head)
    lines: list[Iterable[object]] = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
