"""Read text files (a sentence a line) and symbol tables (a symbol a line)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from asrtool.errors import AsrtoolError

EPSILON = "<eps>"
UNK = "<unk>"
BOS = "<s>"
EOS = "</s>"
BACKOFF = "#0"  # the disambiguation symbol on back-off arcs
RESERVED = (EPSILON, UNK, BOS, EOS, BACKOFF)
BLOCK_BYTES = 2**20  # text is read in blocks of this size


def read_sentences(path: Path) -> Iterator[list[str]]:
    """Yield the words of every non-empty line of `path`.

    Raises AsrtoolError for a missing file, a line that is not UTF-8, and a file without words.
    """
    return (words for _, words in number_sentences(path))


def number_sentences(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, words) as read_sentences."""
    for first, block in read_blocks(path):
        for number, line in enumerate(block.split("\n"), first):
            words = line.split()
            if words:
                yield number, words


def read_blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, lines) by the megabyte.

    Raises AsrtoolError as read_sentences.
    """
    number, empty = 1, True
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES) + file.readline():
                text = block.decode("utf-8-sig" if number == 1 else "utf-8")  # without a byte-order mark in front
                empty = empty and not text.strip()
                yield number, text
                number += block.count(b"\n")
    except UnicodeDecodeError as error:
        number += error.object[: error.start].count(b"\n")
        raise AsrtoolError(f"{path}:{number}: not UTF-8 text, {error.reason}", "convert the file to UTF-8") from error
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", "give one sentence a line") from error
    if empty:
        raise AsrtoolError(f"{path}: holds no words, expected one sentence a line", "check what wrote the file")


def extra_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return the paths in `folder` of the texts `names` of ``lm.extra_text``."""
    stems = (re.sub(r"[^\w-]+", "_", Path(name).stem) for name in names)
    return [folder / f"{number}.{stem}.txt" for number, stem in enumerate(stems, 1)]


def read_table(path: Path, made_by: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of the small table `path` of the command `made_by`.

    Raises AsrtoolError for a file that is missing or not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AsrtoolError(f"{path}: cannot be read, {reason}", f"run `asrtool {made_by}` again") from error
    return ((number, line.split()) for number, line in enumerate(text.splitlines(), 1))


def write_symbols(path: Path, symbols: Iterable[str]) -> None:
    """Write `symbols` numbered from 0."""
    path.write_text("".join(f"{symbol} {number}\n" for number, symbol in enumerate(symbols)), encoding="utf-8")


def read_symbols(path: Path, made_by: str) -> list[str]:
    """Read the symbols of `path`, a file of the command `made_by`, by number from 0.

    Raises AsrtoolError naming file and line of anything else, and of a symbol that occurs twice.
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
        raise AsrtoolError(f"{path}: {twice} occurs twice, expected each symbol once", again)
    return symbols
