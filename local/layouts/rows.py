"""The lines of a manifest, a table with a heading or JSON lines, as what they say of an utterance."""

from __future__ import annotations

import contextlib
import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from asrtool.errors import AsrtoolError
from asrtool.local.releases import MANIFESTS

TABLES, LINES = MANIFESTS[:2], MANIFESTS[2:]
AN_OBJECT = "expected an object of an utterance on each line"
# What a manifest says of an utterance -> how columns or keys of it are called, of several the first one that is there.
COLUMNS = {
    "audio": (
        "audio_filepath", "audio_path", "audio_file", "audio", "file_name", "filename", "wav_filename", "wav_path",
        "wav", "file", "path",
    ),
    "text": ("text", "sentence", "transcription", "transcript", "normalized_text"),
    "speaker": ("speaker", "speaker_id", "spk", "spk_id", "client_id"),
    "offset": ("offset", "start"),
    "duration": ("duration",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """An utterance of a manifest; times in seconds, None for the beginning and the end of the file."""

    where: str  # FILE:LINE
    audio: str
    text: str
    speaker: str  # empty where it is not known
    offset_s: float | None
    duration_s: float | None


def is_manifest(path: Path) -> bool:
    """Whether `path` is a file named as a manifest."""
    return path.suffix.lower() in (*TABLES, *LINES) and path.is_file()


def read_rows(manifest: Path) -> Iterator[Row]:
    """The utterances of a file. Raises AsrtoolError naming the line of what is malformed."""
    is_table = manifest.suffix.lower() in TABLES
    is_empty = True
    with _open(manifest, "" if is_table else "\n") as file:
        for line, entry in _read_table(manifest, file) if is_table else _read_lines(manifest, file):
            is_empty = False
            yield row_of(f"{manifest}:{line}", entry)
    if is_empty:
        raise AsrtoolError(f"{manifest}: no utterance in it", "expected one a line")


@contextlib.contextmanager
def _open(path: Path, newline: str) -> Iterator[TextIO]:
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as file:
            yield file
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", "check the path") from error
    except UnicodeDecodeError as error:
        line, byte = _first_broken(path)
        raise AsrtoolError(
            f"{path}:{line}: byte 0x{byte:02x} is not UTF-8", "convert it, for example with iconv"
        ) from error


def _first_broken(path: Path) -> tuple[int, int]:
    """Line and value of the first byte that is not UTF-8."""
    with path.open("rb") as file:
        for line, content in enumerate(file, start=1):
            try:
                content.decode()
            except UnicodeDecodeError as error:
                return line, content[error.start]
    raise AssertionError(path)


def _read_lines(path: Path, file: TextIO) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, content in enumerate(file, start=1):
        if not content.strip():
            continue
        try:
            entry = json.loads(content.removesuffix("\n"))
        except (ValueError, RecursionError) as error:
            raise AsrtoolError(f"{path}:{line}: no JSON: {error}", AN_OBJECT) from error
        if not isinstance(entry, dict):
            raise AsrtoolError(
                f"{path}:{line}: {content.strip()[:40]!r}", "expected an object of an utterance on each line"
            )
        yield line, entry


def _read_table(path: Path, file: TextIO) -> Iterator[tuple[int, Mapping[str, Any]]]:
    heading = file.readline()
    file.seek(0)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;|\t", key=lambda mark: _num_known(heading, mark))
    if delimiter == "\t":  # where a mark of quotation is one
        reader = csv.reader(file, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
    names: list[str] | None = None
    begin = 1
    try:
        for fields in reader:
            line, begin = begin, reader.line_num + 1
            if names is None:
                names = [field.strip().lower() for field in fields]
                continue
            if not any(field.strip() for field in fields):  # as a spreadsheet has an empty row
                continue
            if len(fields) != len(names):
                raise AsrtoolError(
                    f"{path}:{line}: {len(fields)} fields",
                    f"expected {len(names)} as in the heading: {', '.join(names)}",
                )
            yield line, dict(zip(names, fields, strict=True))
    except csv.Error as error:
        raise AsrtoolError(f"{path}:{begin}: {error}", "correct the line") from error


def _num_known(heading: str, delimiter: str) -> int:
    known = {name for names in COLUMNS.values() for name in names}
    return len(known & {name.strip(' "\r').lower() for name in heading.split(delimiter)})


def row_of(where: str, entry: Mapping[str, Any]) -> Row:
    """What `entry`, which is at `where`, says of an utterance. Raises AsrtoolError where it is malformed."""
    audio, text = (_needed(where, entry, what) for what in ("audio", "text"))
    speaker = _value(entry, "speaker")
    offset_s, duration_s = (_seconds(where, entry, what) for what in ("offset", "duration"))
    return Row(where, audio, text, "" if speaker is None else str(speaker).strip(), offset_s, duration_s)


def _needed(where: str, entry: Mapping[str, Any], what: str) -> str:
    value = _value(entry, what)
    if isinstance(value, dict):  # of audio, in HuggingFace's datasets
        value = value.get("path")
    if value is None:
        found = ", ".join(entry)
        raise AsrtoolError(f"{where}: no {what} among {found[:100]}", f"expected one of {', '.join(COLUMNS[what])}")
    if not isinstance(value, str) or (what == "audio" and not _is_path(value)):
        raise AsrtoolError(f"{where}: {what} is {value!r}", f"expected {'a path' if what == 'audio' else 'a text'}")
    return value


def _is_path(value: str) -> bool:
    return bool(value.strip()) and "\0" not in value


def _value(entry: Mapping[str, Any], what: str) -> Any:
    return next((entry[name] for name in COLUMNS[what] if entry.get(name) is not None), None)


def _seconds(where: str, entry: Mapping[str, Any], what: str) -> float | None:
    value = _value(entry, what)
    if value is None or value == "":
        return None
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise AsrtoolError(f"{where}: {what} is {value!r}", "expected seconds")
    return seconds
