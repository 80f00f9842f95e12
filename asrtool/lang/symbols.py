"""Symbol tables: one symbol and its number a line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.lang.text import read_table

EPSILON = "<eps>"
UNK = "<unk>"
BOS = "<s>"
EOS = "</s>"
BACKOFF = "#0"  # the disambiguation symbol on back-off arcs
RESERVED = (EPSILON, UNK, BOS, EOS, BACKOFF)


def write_symbols(path: Path, symbols: Iterable[str]) -> None:
    """Write `symbols` numbered from 0."""
    path.write_text("".join(f"{symbol} {number}\n" for number, symbol in enumerate(symbols)), encoding="utf-8")


def read_symbols(path: Path, made_by: str) -> list[str]:
    """The symbols of `path`, a file of the command `made_by`, in the order of their numbers, which run from 0.

    Raises AsrtoolError naming file and line of anything else, and of a symbol that is there twice.
    """
    again = f"run `asrtool {made_by}` again"
    symbols: list[str] = []
    for number, fields in read_table(path, made_by):
        expected = str(len(symbols))
        if len(fields) != 2 or fields[1] != expected:
            raise AsrtoolError(f"{path}:{number}: {' '.join(fields)!r}, expected a symbol and {expected}", again)
        symbols.append(fields[0])
    if not symbols:
        raise AsrtoolError(f"{path}: empty, expected one symbol and its number a line", again)
    if len(set(symbols)) < len(symbols):
        twice = next(symbol for symbol in symbols if symbols.count(symbol) > 1)
        raise AsrtoolError(f"{path}: {twice} is there twice, expected each symbol once", again)
    return symbols
