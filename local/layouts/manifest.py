"""Custom manifest: a table with a header, or JSON lines, an utterance a line.

It names an audio file and a text, and maybe speaker and times: as NeMo (``audio_filepath``, ``offset``),
HuggingFace's audiofolder (``file_name``, ``transcription``), Common Voice (``path``, ``sentence``, ``client_id``),
deepspeech.pytorch (audio and transcript files), or any table with columns of COLUMNS.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lhotse import SupervisionSegment

from asrtool.data.manifests.manifest import Drop
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.finish import write_set
from asrtool.local.layouts.rows import Row, read_rows
from asrtool.local.utterances import Sound, entries_of, forms, locate, one_word, read_transcript, usable_audio
from asrtool.settings.data import Data

CLIPS = "clips"  # where Common Voice has its files, beside its tables


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
    tried = [place / form for form in forms(name) for base in bases for place in (base, base / CLIPS)]
    tried += [base / CLIPS / f"{name}.mp3" for base in bases]  # the first releases of Common Voice leave out the suffix
    return next((path for path in tried if path.is_file()), None) or locate(next(iter(bases), Path()), name)


def _names(by_file: Mapping[Path, list[Row]], bases: Iterable[Path]) -> dict[Path, str]:
    """Return path -> recording id: the path below a base folder, or its name."""
    names: dict[str, Path] = {}
    for path, (row, *_) in by_file.items():
        tops = (top for base in bases for top in (base / CLIPS, base))
        base = next((top for top in tops if path.is_relative_to(top)), path.parent)
        id_ = one_word("-".join(path.relative_to(base).with_suffix("").parts))
        other = names.setdefault(id_, path)
        if other != path:
            what = f"{path} and {other}, of {by_file[other][0].where}, would both be recording {id_}"
            raise AsrtoolError(f"{row.where}: {what}", "rename one of them")
    return {path: id_ for id_, path in names.items()}


def _segments(
    id_: str, sound: Sound, rows: list[Row], bases: Sequence[Path], drops: list[Drop]
) -> Iterator[SupervisionSegment]:
    """Yield utterances of a recording; AsrtoolError if two are the same segment."""
    places: dict[str, str] = {}
    for row in rows:
        start_s = row.offset_s or 0.0
        length_s = sound.duration_s - start_s if row.duration_s is None else row.duration_s
        is_whole = len(rows) == 1 and not start_s
        name = id_ if is_whole else f"{id_}-{round(1000 * start_s):08d}"
        other = places.setdefault(name, row.where)
        if other != row.where:
            what = f"{row.audio} from {start_s:g} s was there before, in {other}"
            raise AsrtoolError(f"{row.where}: {what}", "keep one of the two")
        text: str | None = row.text
        if row.transcript:
            text = read_transcript(_find(row.transcript, bases), name, drops)
        if text is not None:
            yield SupervisionSegment(name, id_, start_s, length_s, 0, text, speaker=row.speaker or None)
