"""Sentences from text files, one a line, words between spaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from asrtool.errors import AsrtoolError


def read_sentences(path: Path) -> Iterator[list[str]]:
    """The words of every line of `path` that has any.

    Raises AsrtoolError for a missing file, a line that is not UTF-8, and a file without words.
    """
    return (words for _, words in number_sentences(path))


def number_sentences(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, words) as read_sentences."""
    empty = True
    for number, line in enumerate(_read_lines(path), 1):
        words = line.split()
        if words:
            empty = False
            yield number, words
    if empty:
        raise AsrtoolError(f"{path}: holds no words, expected one sentence a line", "check what wrote the file")


def _read_lines(path: Path) -> Iterator[str]:
    number = 0
    try:
        with path.open("rb") as lines:
            for line in lines:
                number += 1
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")  # without a byte-order mark in front
    except UnicodeDecodeError as error:
        raise AsrtoolError(f"{path}:{number}: not UTF-8 text, {error.reason}", "convert the file to UTF-8") from error
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", "give one sentence a line") from error


def read_table(path: Path, made_by: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of every line of the small text table `path`, which the command `made_by` writes.

    Raises AsrtoolError for a file that is missing or not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AsrtoolError(f"{path}: cannot be read, {reason}", f"run `asrtool {made_by}` again") from error
    return ((number, line.split()) for number, line in enumerate(text.splitlines(), 1))
