"""Folder of x.wav, x.flac, x.mp3 ... with x.txt, or a tree as LibriSpeech's.

In a folder of pairs, at any depth, the recording's id is its path below the folder, with - for /. The speaker is its
folder; files in the top folder are one speaker each. The tree has SPEAKER/CHAPTER/*.trans.txt with *.flac.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from lhotse import SupervisionSegment

from asrtool.data.manifests.manifest import Drop
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.finish import write_set
from asrtool.local.layouts.manifest import Row, write_rows
from asrtool.local.releases.releases import find_files
from asrtool.local.utterances import UNREAD, clean_id, entries_of, read_transcript, usable_audio
from asrtool.settings.data import Data

# Formats of speech that libsndfile reads.
SUFFIXES = (
    *(".wav", ".flac", ".sph", ".mp3", ".ogg", ".oga", ".opus"),
    *(".aiff", ".aif", ".aifc", ".au", ".snd", ".caf", ".w64", ".rf64"),
)


def prepare_folder(folder: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out`, with ref.stm of that label, and ref.glm.

    Raises AsrtoolError if no pair exists, two files would have one id, or too much cannot be used.
    """
    drops: list[Drop] = []
    files, texts = _find_pairs(folder, drops)
    transcripts = {id_: read_transcript(Path(texts[id_]), id_, drops) for id_ in files if id_ in texts}
    paired = {id_: Path(files[id_]) for id_, text in transcripts.items() if text is not None}
    sounds = usable_audio(paired, None, 1, out, drops)
    segments = []
    for id_, sound in sounds.items():
        place = paired.pop(id_).parent
        speaker = None if place == folder else _name(place.relative_to(folder))
        segments.append(SupervisionSegment(id_, id_, 0.0, sound.duration_s, 0, transcripts.pop(id_), speaker=speaker))
    write_set(out, entries_of(sounds), segments, drops, data, label)


def has_pairs(folder: Path) -> bool:
    """Return whether a text has an audio file beside it."""
    return any(text.with_suffix(suffix).is_file() for text in find_files(folder, "*.txt") for suffix in SUFFIXES)


def _find_pairs(folder: Path, drops: list[Drop]) -> tuple[dict[str, str], dict[str, str]]:
    """Return id -> audio file and id -> text; files without a partner go to `drops`."""
    sounds = _files_of(folder, SUFFIXES)
    texts = _files_of(folder, (".txt",))
    if not sounds.keys() & texts.keys():
        raise AsrtoolError(
            f"{folder}: no audio file with a text beside it, expected x.txt and x with {', '.join(SUFFIXES)}",
            "convert audio of other formats (ffmpeg -i x.m4a x.flac); docs/guide/corpora.md has the other layouts",
        )
    if unheard := texts.keys() - sounds.keys():  # a drop will say how to convert them
        others = ((_stem(path), str(path)) for path in find_files(folder, "*") if path.suffix.lower() in UNREAD)
        sounds |= {stem: path for stem, path in others if stem in unheard}
    names = _names(folder, sounds.keys() | texts.keys())
    without_text, without_audio = sounds.keys() - texts.keys(), sorted(texts.keys() - sounds.keys(), key=Path)
    drops += [Drop(names[s], "no transcript", f"no {Path(s).name}.txt beside it") for s in sounds if s in without_text]
    drops += [Drop(names[s], "no audio", f"no audio beside {texts[s]}") for s in without_audio]
    return {names[stem]: path for stem, path in sounds.items()}, {names[stem]: path for stem, path in texts.items()}


def _files_of(folder: Path, suffixes: Collection[str]) -> dict[str, str]:
    """Return stem -> path; AsrtoolError for two files of one stem."""
    found: dict[str, str] = {}
    for path in (path for path in find_files(folder, "*") if path.suffix.lower() in suffixes):
        if (other := found.setdefault(_stem(path), str(path))) != str(path):
            raise AsrtoolError(f"{other} and {path.name}: two files for one recording", "keep one of them")
    return found


def _stem(path: Path) -> str:
    """Return the composed path without suffix."""
    return unicodedata.normalize("NFC", os.path.splitext(path)[0])


def _names(folder: Path, stems: Iterable[str]) -> dict[str, str]:
    """Return path without suffix -> id."""
    names: dict[str, str] = {}
    for stem in stems:
        id_ = _name(Path(stem).relative_to(unicodedata.normalize("NFC", str(folder))))
        other = names.setdefault(id_, stem)
        if other != stem:
            first, second = sorted((other, stem), key=Path)
            raise AsrtoolError(f"{first}.* and {second}.*: both would be recording {id_}", "rename one of them")
    return {stem: id_ for id_, stem in names.items()}


def _name(path: Path) -> str:
    return clean_id("-".join(path.parts))


TRANSCRIPTS = "*-*.trans.txt"


def prepare_trans(folder: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out` of all parts below `folder`.

    Segments of ref.stm have the label. Raises AsrtoolError if too much cannot be used.
    """
    write_rows(_rows(folder.absolute()), [], out, data, label)


def _rows(folder: Path) -> Iterator[Row]:
    for path in find_files(folder, TRANSCRIPTS):
        lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
        for number, line in enumerate(filter(str.strip, lines), start=1):
            id_, *words = line.split(None, 1)
            audio = str(path.with_name(f"{id_}.flac"))
            yield Row(f"{path}:{number}", audio, " ".join(words), id_.partition("-")[0], None, None)


def is_trans_folder(folder: Path) -> bool:
    """Return whether `folder` holds such a tree, at any depth."""
    return any(find_files(folder, TRANSCRIPTS))
