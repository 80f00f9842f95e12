"""Custom manifest: a table with a header, or JSON lines, an utterance a line.

It names an audio file and a text, and optionally speaker and times: as NeMo (``audio_filepath``, ``offset``),
HuggingFace's audiofolder (``file_name``, ``transcription``), Common Voice (``path``, ``sentence``, ``client_id``),
deepspeech.pytorch (audio and transcript files), or any table with columns of COLUMNS.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhotse import SupervisionSegment

from asrtool.data.manifests.manifest import Drop
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.finish import write_set
from asrtool.local.releases.releases import MANIFESTS
from asrtool.local.utterances import Sound, clean_id, entries_of, locate, name_forms, read_transcript, usable_audio
from asrtool.settings.data import Data

TABLES, LINES = MANIFESTS[:2], MANIFESTS[2:]
AN_OBJECT = "expected an object of an utterance on each line"
TRANSCRIPTS = ("transcript_path", "txt_path", "text_path")  # keys for a file with the text
PAIR = ("audio_path", TRANSCRIPTS[0])  # the columns of a table without a heading, as deepspeech.pytorch has it
# Field of an utterance -> names of its column or key; the first one present is used.
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
COLUMN_NAMES = {name for names in COLUMNS.values() for name in names}


@dataclass(frozen=True, slots=True)
class Row:
    """Utterance of a manifest; times in seconds, None for start and end of the file."""

    where: str  # FILE:LINE, in an array of JSON FILE:NUMBER
    audio: str  # empty if it is null
    text: str  # empty if it is null
    speaker: str  # empty if unknown
    offset_s: float | None
    duration_s: float | None
    transcript: str = ""  # a file that has the text


def is_manifest(path: Path) -> bool:
    """Return whether `path` is named as a manifest."""
    return path.suffix.lower() in (*TABLES, *LINES) and path.is_file()


def read_rows(manifest: Path) -> Iterator[Row]:
    """Yield the utterances of a file; AsrtoolError naming a malformed line."""
    entries = _read_table(manifest) if manifest.suffix.lower() in TABLES else _read_json(manifest)
    row = None
    for number, entry in entries:
        row = row_of(f"{manifest}:{number}", entry)
        yield row
    if row is None:
        raise AsrtoolError(f"{manifest}: no utterance in it", "expected one a line")


def _lines(path: Path, newline: str) -> Iterator[str]:
    """Yield the lines of a text; AsrtoolError naming the first byte that is not UTF-8."""
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline=newline) as file:
            for number, line in enumerate(file, start=1):
                try:
                    line.encode()
                except UnicodeEncodeError as error:
                    what = f"{path}:{number}: byte 0x{ord(line[error.start]) - 0xDC00:02x} is not UTF-8"
                    raise AsrtoolError(what, "convert it, for example with iconv") from None
                yield line
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", "check the path") from error


def _read_json(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield entries with line numbers, or with positions in a JSON array.

    The one object of deepspeech.pytorch has ``root_path`` and ``samples``.
    """
    lines = ((number, line) for number, line in enumerate(_lines(path, "\n"), start=1) if line.strip())
    begin, first = next(lines, (1, ""))
    try:
        entry = json.loads(first)
    except (ValueError, RecursionError):
        entry = None
    if isinstance(entry, dict) and "samples" not in entry:
        for line, content in itertools.chain([(begin, first)], lines):
            yield line, _object(f"{path}:{line}", _parse(path, content.removesuffix("\n"), line))
    elif first:
        whole = _parse(path, "".join(_lines(path, "\n")), 1)
        root = ""
        if isinstance(whole, dict):
            root, whole = str(whole.get("root_path") or ""), whole.get("samples", [whole])
        for number, found in enumerate(whole if isinstance(whole, list) else [whole], start=1):
            entry = _object(f"{path}:{number}", found)
            for key in entry.keys() & {"wav_path", *TRANSCRIPTS} if root else ():
                entry[key] = os.path.join(root, str(entry[key]))
            yield number, entry


def _parse(path: Path, content: str, line: int) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        line += getattr(error, "lineno", 1) - 1
        raise AsrtoolError(f"{path}:{line}: no JSON: {error}", AN_OBJECT) from error


def _object(where: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise AsrtoolError(f"{where}: {json.dumps(found)[:40]!r}", AN_OBJECT)
    return found


def _read_table(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    lines = _lines(path, "")
    heading = next(lines, "")
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;|\t", key=lambda mark: _num_known(heading, mark))
    reader = csv.reader(
        itertools.chain([heading], lines),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,  # TSV has no quoting
        strict=True,
    )
    names: list[str] | None = None
    begin = 1
    try:
        for fields in reader:
            line, begin = begin, reader.line_num + 1
            if names is None:
                names = [field.strip().lower() for field in fields]
                if not _is_pair(fields):
                    continue
                names = list(PAIR)
            if not any(field.strip() for field in fields):  # empty row of a spreadsheet
                continue
            if len(fields) != len(names):
                raise AsrtoolError(
                    f"{path}:{line}: {len(fields)} fields",
                    f"expected {len(names)} as in the heading: {', '.join(names)}",
                )
            yield line, dict(zip(names, fields, strict=True))
    except csv.Error as error:
        raise AsrtoolError(f"{path}:{begin}: {error}", "correct the line") from error


def _is_pair(fields: Sequence[str]) -> bool:
    """Return whether a first line has the files of an utterance, not a header."""
    return len(fields) == 2 and bool(Path(fields[0]).suffix) and Path(fields[1].strip()).suffix.lower() == ".txt"


def _num_known(heading: str, delimiter: str) -> int:
    return len(COLUMN_NAMES & {name.strip(' "\r').lower() for name in heading.split(delimiter)})


def row_of(where: str, entry: Mapping[str, Any]) -> Row:
    """Parse an entry at `where`; AsrtoolError if it is malformed."""
    transcript = next((str(entry[key]) for key in TRANSCRIPTS if entry.get(key)), "")
    audio, text = _needed(where, entry, "audio"), "" if transcript else _needed(where, entry, "text")
    speaker = _value(entry, "speaker")
    offset_s, duration_s = (_seconds(where, entry, what) for what in ("offset", "duration"))
    return Row(where, audio, text, "" if speaker is None else str(speaker).strip(), offset_s, duration_s, transcript)


def _needed(where: str, entry: Mapping[str, Any], what: str) -> str:
    value = _value(entry, what)
    if isinstance(value, dict):  # audio in HuggingFace's datasets
        value = value.get("path")
    if value is None and entry.keys().isdisjoint(COLUMNS[what]):
        found = ", ".join(entry)
        raise AsrtoolError(f"{where}: no {what} among {found[:100]}", f"expected one of {', '.join(COLUMNS[what])}")
    value = "" if value is None else value
    if not isinstance(value, str) or (what == "audio" and "\0" in value):
        raise AsrtoolError(f"{where}: {what} is {value!r}", f"expected {'a path' if what == 'audio' else 'a text'}")
    return value if what == "text" else value.strip() and value


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
    if not math.isfinite(seconds):  # a negative length of one utterance is no error: it is dropped later
        raise AsrtoolError(f"{where}: {what} is {value!r}", "expected seconds")
    return seconds


CLIPS = "clips"  # folder of Common Voice's audio, beside its tables


def prepare_manifest(manifest: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out` from a manifest file; ref.stm has the label.

    Paths are relative to its folder, to clips in it, or found as `locate` does. A file is a recording. Raises
    AsrtoolError naming a malformed or repeated line, or if too much cannot be used.
    """
    write_rows(read_rows(manifest), _bases(manifest), out, data, label)


def write_rows(all_rows: Iterable[Row], bases: Sequence[Path], out: Path, data: Data, label: str) -> None:
    """Write rows as prepare_manifest; paths are relative to one of `bases`."""
    drops: list[Drop] = []
    by_file: dict[Path, list[Row]] = {}
    for row in all_rows:
        if row.audio:
            by_file.setdefault(_find(row.audio, bases), []).append(row)
        else:
            drops.append(Drop(row.where, "no audio", "its path is null or empty"))
    names = _names(by_file, bases)
    sounds = usable_audio({names[path]: path for path in by_file}, None, 1, out, drops)
    rows = {names[path]: by_file.pop(path) for path in list(by_file)}
    # Each recording's rows are freed once its segments are made: a long table is in memory once.
    segments = [s for id_, sound in sounds.items() for s in _segments(id_, sound, rows.pop(id_), bases, drops)]
    write_set(out, entries_of(sounds), segments, drops, data, label)


def _bases(manifest: Path) -> list[Path]:
    """Return the folders of relative paths: the file's, and a link's target's."""
    bases = []
    while manifest.is_symlink():
        bases.append(manifest.parent)
        manifest = manifest.parent / os.readlink(manifest)
    return [manifest.parent, *bases]


def _find(name: str, bases: Sequence[Path]) -> Path:
    candidates = [place / form for form in name_forms(name) for base in bases for place in (base, base / CLIPS)]
    candidates += [base / CLIPS / f"{name}.mp3" for base in bases]  # early Common Voice has no suffix
    return next((path for path in candidates if path.is_file()), None) or locate(next(iter(bases), Path()), name)


def _names(by_file: Mapping[Path, list[Row]], bases: Iterable[Path]) -> dict[Path, str]:
    """Return path -> recording id: the path below a base folder, or its name."""
    names: dict[str, Path] = {}
    for path, (row, *_) in by_file.items():
        tops = (top for base in bases for top in (base / CLIPS, base))
        base = next((top for top in tops if path.is_relative_to(top)), path.parent)
        id_ = clean_id("-".join(path.relative_to(base).with_suffix("").parts))
        other = names.setdefault(id_, path)
        if other != path:
            what = f"{path} and {other}, of {by_file[other][0].where}, would both be recording {id_}"
            raise AsrtoolError(f"{row.where}: {what}", "rename one of them")
    return {path: id_ for id_, path in names.items()}


def _segments(
    id_: str, sound: Sound, rows: list[Row], bases: Sequence[Path], drops: list[Drop]
) -> Iterator[SupervisionSegment]:
    """Yield utterances of a recording; AsrtoolError if two are the same segment."""
    rows_of: dict[str, str] = {}
    for row in rows:
        start_s = row.offset_s or 0.0
        length_s = sound.duration_s - start_s if row.duration_s is None else row.duration_s
        is_whole = len(rows) == 1 and not start_s
        name = id_ if is_whole else f"{id_}-{round(1000 * start_s):08d}"
        other = rows_of.setdefault(name, row.where)
        if other != row.where:
            what = f"{row.audio} from {start_s:g} s is repeated, first in {other}"
            raise AsrtoolError(f"{row.where}: {what}", "keep one of the two")
        text: str | None = row.text
        if row.transcript:
            text = read_transcript(_find(row.transcript, bases), name, drops)
        if text is not None:
            yield SupervisionSegment(name, id_, start_s, length_s, 0, text, speaker=row.speaker or None)
