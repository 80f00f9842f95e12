"""Parquet and Arrow files with audio in a column, as HuggingFace has them.

The bytes of each row are written once to a file beside the manifests; the rest is as for a manifest of files.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import soundfile

from asrtool.errors import AsrtoolError, require
from asrtool.files import check_files, foreign_files, mark_files, write_beside
from asrtool.local.layouts.manifest import COLUMN_NAMES, COLUMNS, Row, row_of, write_rows
from asrtool.local.releases.releases import IN_COLUMNS, find_files
from asrtool.local.utterances import clean_id
from asrtool.log import progress
from asrtool.settings.data import Data

BATCH_ROWS = 64  # rows with audio in memory at a time
Entry = dict[str, Any]


def in_columns(path: Path) -> bool:
    """Return whether `path` is named as a file with audio in a column."""
    return path.suffix.lower() in IN_COLUMNS and path.is_file()


def column_files(source: Path, role_names: Mapping[str, Sequence[str]], role: str) -> list[Path]:
    """Return the Parquet or Arrow files of `source` for `role`, maybe none.

    A file or folder belongs to a role if its name begins with one of its names:
    ``data/train-00000-of-00002.parquet``, ``clean/train.100/0000.parquet``, ``validation/data-00000-of-00001.arrow``.
    If none belongs to any role, all files are returned. Raises AsrtoolError if only other roles have files.
    """
    found = [path for suffix in IN_COLUMNS for path in find_files(source, f"*{suffix}")]
    files = sorted(path for path in found if not path.name.startswith("cache-"))  # `map` of datasets leaves these there
    parts = {path: [part.lower() for part in path.relative_to(source).parts] for path in files}
    role_files = {
        name: [path for path in files if any(re.match(rf"{name}(?![a-z])", part) for part in parts[path])]
        for names in role_names.values()
        for name in names
    }
    if not any(role_files.values()):
        return files
    for name in role_names[role]:
        if role_files[name]:
            return role_files[name]
    there, expected = ", ".join(str(path.relative_to(source)) for path in files[:3]), " or ".join(role_names[role])
    raise AsrtoolError(f"{source}: has {there}, for {role} expected {expected}", "name one of the files")


def prepare_columns(files: Sequence[Path], out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out` from `files`, audio to `out`/audio.

    Raises AsrtoolError naming a malformed row, and if too much cannot be used.
    """
    folder = out / "audio"
    taken: set[str] = set()
    rows = (row for path in progress(files, "read columns", unit="file") for row in _rows(path, folder, taken))
    write_rows(rows, [folder, *dict.fromkeys(path.parent for path in files)], out, data, label)


def _rows(path: Path, folder: Path, taken: set[str]) -> Iterator[Row]:
    others = set(foreign_files(folder))
    written: list[Path] = []
    for number, entry in enumerate(_entries(path), start=1):
        where = f"{path}:{number}"
        name = next((name for name in COLUMNS["audio"] if _bytes_of(entry.get(name)) is not None), None)
        if name:
            written.append(_write(entry[name], path, number, folder, taken, others))
            entry[name] = str(written[-1])
            entry = {name: entry[name]} | {key: value for key, value in entry.items() if key not in COLUMNS["audio"]}
        yield row_of(where, entry)
    mark_files(*written)


def _entries(path: Path) -> Iterator[Entry]:
    """Yield the rows of a file, with needed columns; AsrtoolError if unreadable."""
    require("pyarrow", str(path), "pip install 'asrtool[parquet]'")
    import pyarrow
    import pyarrow.parquet

    try:
        with contextlib.ExitStack() as stack:
            if path.suffix.lower() == ".parquet":
                file = stack.enter_context(pyarrow.parquet.ParquetFile(path))
                columns = [name for name in file.schema_arrow.names if name.lower() in COLUMN_NAMES]
                batches = file.iter_batches(BATCH_ROWS, columns=columns)
            else:
                batches = _arrow_batches(pyarrow, stack.enter_context(pyarrow.memory_map(str(path))))
            for batch in batches:
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    for entry in batch.slice(start, BATCH_ROWS).to_pylist():
                        yield {key.lower(): value for key, value in entry.items() if key.lower() in COLUMN_NAMES}
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).split("\n")[0]
        raise AsrtoolError(f"{path}: cannot be read as {path.suffix[1:]}: {reason}", "fetch it again") from error


def _arrow_batches(pyarrow: Any, source: Any) -> Iterator[Any]:
    """Yield batches of the file or stream format; `save_to_disk` writes streams."""
    try:
        file = pyarrow.ipc.open_file(source)
    except pyarrow.ArrowInvalid:
        yield from pyarrow.ipc.open_stream(source)
    else:
        yield from map(file.get_batch, range(file.num_record_batches))


def _bytes_of(value: Any) -> bytes | None:
    found = value.get("bytes") if isinstance(value, dict) else value
    return found if isinstance(found, bytes) else None


def _write(value: Any, path: Path, number: int, folder: Path, taken: set[str], others: set[Path]) -> Path:
    """Write the audio of a row to `folder`, named by the row or by file and number.

    Raises AsrtoolError if a file of `others`, which asrtool did not write, is in the way.
    """
    data = _bytes_of(value) or b""
    original = (value.get("path") or "") if isinstance(value, dict) else ""
    name = clean_id(PurePosixPath(original).stem).lstrip(".")
    if not name or name in taken:
        own = f"{clean_id(path.stem)}-{number:06d}"
        longer = f"{clean_id(path.parent.name)}-{own}"  # several folders may have a 0000.parquet
        names = itertools.chain((own, longer), (f"{longer}-{again}" for again in itertools.count(2)))
        name = next(name for name in names if name not in taken)
    taken.add(name)
    target = folder / f"{name}{_suffix(data, original)}"
    if not target.is_file() or target.read_bytes() != data:
        if target.absolute() in others:
            check_files(target)
        with write_beside(target) as temporary:
            temporary.write_bytes(data)
    return target


def _suffix(data: bytes, original: str) -> str:
    """Return the suffix of an audio format; if unreadable, of the `original` name."""
    try:
        return f".{soundfile.info(io.BytesIO(data)).format.lower()}"
    except soundfile.LibsndfileError:
        return PurePosixPath(original).suffix or ".bin"
