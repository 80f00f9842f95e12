"""Read the lines of public text formats, with errors that name file and line."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from asrtool.errors import AsrtoolError

_CONTROLS = bytes({*range(32), 127} - {*b"\t\n"})
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TOKEN = re.compile(r"[^ \t]+")
_TO_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_TO_LOWER = {upper: lower for lower, upper in _TO_UPPER.items()}


class Location(NamedTuple):
    """A line of a file; lines count from 1."""

    path: Path
    line: int

    def fail(self, what: str, expected: str) -> NoReturn:
        raise AsrtoolError(f"{self.path}:{self.line}: {what}", f"expected {expected}")


class Side(NamedTuple):
    """Channel of a file in a line of stm or ctm; sorted as NIST's scorer sorts."""

    file: str
    gap: str  # white space after the file name
    channel: str


def read_lines(path: Path | str) -> Iterator[tuple[Location, str]]:
    """Yield the lines of a UTF-8 file with their locations, without line ends.

    Raises AsrtoolError as `read_text` does.
    """
    path = Path(path)
    for number, line in enumerate(to_lines(read_text(path)), 1):
        yield Location(path, number), line


def to_lines(text: str) -> list[str]:
    """Return the lines of a text, without line ends."""
    return text.removesuffix("\n").split("\n") if text else []


def check_end(path: Path | str, text: str, is_moved: Callable[[], bool]) -> None:
    """Raise AsrtoolError if the last line lacks a line feed and sorting moves it.

    NIST's scorer sorts lines; it would join this line and the one sorted after it.
    """
    if not text.endswith("\n") and is_moved():
        lines = to_lines(text)
        what = f"no line feed after {lines[-1].strip()!r}"
        Location(Path(path), len(lines)).fail(what, "one at the end of the file")


def read_text(path: Path | str) -> str:
    """Read a UTF-8 file.

    Raises AsrtoolError for a missing file, other encodings, a byte-order mark (which would be part of the first word)
    and control characters (a carriage return among them).
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {(error.strerror or '').lower()}", "check the path") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        start = data.rfind(b"\n", 0, error.start) + 1
        location = Location(path, data.count(b"\n", 0, start) + 1)
        location.fail(f"byte {error.start - start + 1} is not UTF-8", "UTF-8 text")
    if data.startswith(codecs.BOM_UTF8):
        Location(path, 1).fail("a byte-order mark before the first character", "UTF-8 text without one")
    if len(data.translate(None, _CONTROLS)) < len(data):
        start, control = min((index, chr(byte)) for index, byte in enumerate(data) if byte in _CONTROLS)
        location = Location(path, data.count(b"\n", 0, start) + 1)
        location.fail(f"control character {control!r}", "text lines that end in a line feed alone")
    return text


def split(line: str) -> list[str]:
    """Return the tokens between spaces and tabs; other white space stays."""
    # Lines hold no control characters, so that ASCII has no other white space.
    return line.split() if line.isascii() else _TOKEN.findall(line)


def to_number(text: str, location: Location, what: str) -> float:
    """Return a finite decimal number; raises AsrtoolError."""
    if not _NUMBER.fullmatch(text) or abs(float(text)) > 1e9:
        location.fail(f"{what} is {text!r}", "a decimal number of seconds")
    return float(text)


def upper(text: str) -> str:
    """Return `text` with a-z alone in upper case, as csrfilt does."""
    return text.upper() if text.isascii() else text.translate(_TO_UPPER)


def lower(text: str) -> str:
    """Return `text` with A-Z alone in lower case."""
    return text.lower() if text.isascii() else text.translate(_TO_LOWER)
